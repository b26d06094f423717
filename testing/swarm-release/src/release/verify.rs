//! The step `verify`: every file and image of a release is what its digest says.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::{contents, file, layout::Layout, sums};

/// Arguments of `verify`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Folder with the files of a release
    #[arg(default_value = "dist")]
    dist: PathBuf,
}

/// Names of the image layouts of a release, below `images`.
pub(crate) const LAYOUTS: [&str; 2] = ["operator", "worker"];

/// The limit of this check, and the command that goes further.
const NO_ORIGIN: &str = "Digests prove no origin: `cosign verify-blob`, as docs/verify-release.md has it, \
                         checks who signed SHA256SUMS.";

/// Runs the step.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let dist = &arguments.dist;
    // The images of a published release are in a registry.
    if file::names(dist)?.contains("images") {
        verify(dist)?;
        println!("{}: all files and images have their digests", dist.display());
    } else {
        verify_files(dist)?;
        println!("{}: all files have their digests; it has no images", dist.display());
    }
    println!("{NO_ORIGIN}");
    Ok(())
}

/// Checks the files by SHA256SUMS, and the images by `install.yaml`, which is one of these files.
pub(crate) fn verify(dist: &Path) -> Result<()> {
    let version = verify_files(dist)?;
    let installed = file::text(&dist.join("install.yaml"))?;
    file::has_only(&dist.join("images"), LAYOUTS)?;
    for name in LAYOUTS {
        let folder = dist.join("images").join(name);
        let layout = Layout::at(folder.clone());
        layout.verify(&version)?;
        let digest = layout.digest()?;
        let (image, end) = (format!("/swarm-{name}:"), format!("@{digest}"));
        if !installed.lines().any(|line| line.contains(&image) && line.ends_with(&end)) {
            bail!("{} has the digest {digest}, which install.yaml does not name", folder.display());
        }
    }
    Ok(())
}

/// Checks that all files of a release are there, each with its digest, and returns the version.
fn verify_files(dist: &Path) -> Result<String> {
    contents::version(&sums::verify(dist)?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::release::fixture;

    /// Runs the command that docs/verify-release.md names.
    fn sha256sum(dist: &Path) -> bool {
        let mut command = std::process::Command::new("sha256sum");
        command.args(["--check", "--quiet", sums::FILE]).current_dir(dist);
        command.output().unwrap().status.success()
    }

    /// Changes one byte in the middle of a file.
    fn tamper(path: &Path) {
        let mut bytes = fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn a_release_is_what_its_digests_say() {
        let dist = fixture::dist();
        verify(dist.path()).unwrap();
        assert!(sha256sum(dist.path()));
    }

    #[test]
    fn each_changed_file_is_noticed_and_named() {
        for name in sums::files(fixture::dist().path()).unwrap() {
            let dist = fixture::dist();
            tamper(&dist.path().join(&name));
            let refused = verify(dist.path()).unwrap_err().to_string();
            assert!(refused.contains(&format!("{name} is changed")), "{refused}");
            assert!(!sha256sum(dist.path()), "{name}");
        }
    }

    #[test]
    fn a_missing_file_and_one_without_a_digest_are_noticed() {
        let dist = fixture::dist();
        fs::rename(dist.path().join("crds.yaml"), dist.path().join("other.yaml")).unwrap();
        let refused = verify(dist.path()).unwrap_err().to_string();
        assert!(refused.contains("crds.yaml: No such file"), "{refused}");
        assert!(refused.contains("other.yaml is not in SHA256SUMS"), "{refused}");
    }

    #[test]
    fn each_changed_file_of_an_image_is_noticed() {
        for name in LAYOUTS {
            let blobs = Path::new("images").join(name).join("blobs/sha256");
            let dist = fixture::dist();
            let files = fs::read_dir(dist.path().join(&blobs)).unwrap();
            let files: Vec<_> = files.map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(files.len(), 3, "manifest, config and layer");
            for file in files {
                let dist = fixture::dist();
                tamper(&dist.path().join(&blobs).join(&file));
                let refused = verify(dist.path()).unwrap_err().to_string();
                assert!(refused.contains(&format!("{} is changed", file.display())), "{refused}");
            }
        }
    }

    /// Another image whose own digests are right still differs from the image in `install.yaml`.
    #[test]
    fn a_replaced_image_is_noticed() {
        let dist = fixture::dist();
        let operator = dist.path().join("images/operator");
        fs::remove_dir_all(&operator).unwrap();
        let other = serde_json::json!({"note": "another image"});
        fixture::layout_with(&operator, "amd64", "0.1.0", b"layer", |it| it["annotations"] = other);
        let refused = verify(dist.path()).unwrap_err().to_string();
        assert!(refused.contains("which install.yaml does not name"), "{refused}");
    }

    #[test]
    fn an_image_in_the_place_of_the_other_is_noticed() {
        let dist = fixture::dist();
        let [operator, worker] = LAYOUTS.map(|name| dist.path().join("images").join(name));
        fs::remove_dir_all(&operator).unwrap();
        fs::rename(worker, &operator).unwrap();
        fixture::layout(&dist.path().join("images/worker"), "amd64", "0.1.0");
        let refused = verify(dist.path()).unwrap_err().to_string();
        assert!(refused.contains("images/operator has the digest"), "{refused}");
    }

    #[test]
    fn the_files_of_a_published_release_have_a_signature_and_no_images() {
        let dist = fixture::dist();
        fs::write(dist.path().join("SHA256SUMS.sigstore.json"), "{}").unwrap();
        fs::remove_dir_all(dist.path().join("images")).unwrap();
        run(&Arguments { dist: dist.path().to_owned() }).unwrap();
        tamper(&dist.path().join("crds.yaml"));
        assert!(run(&Arguments { dist: dist.path().to_owned() }).is_err());
    }
}
