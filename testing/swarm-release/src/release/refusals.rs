//! Damaged releases, each with the sentence that refuses it.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{fixture, layout::Layout, sums, verify};

/// Damages a release, and returns the sentence that refuses it.
fn refusal_after(damage: impl FnOnce(&Path)) -> String {
    let dist = fixture::dist();
    damage(dist.path());
    format!("{:#}", verify::verify(dist.path()).unwrap_err())
}

fn assert_refused(expected: &str, damage: impl FnOnce(&Path)) {
    let refused = refusal_after(damage);
    assert!(refused.contains(expected), "{refused}\nhas no `{expected}`");
}

/// Replaces a file by a link to a copy.
fn link(path: &Path) {
    let copy = path.with_extension("copy");
    fs::rename(path, &copy).unwrap();
    symlink(copy, path).unwrap();
}

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Changes a JSON file of the operator's image.
fn edit(file: &str, change: impl FnOnce(&mut Value)) -> impl FnOnce(&Path) {
    move |dist| {
        let path = dist.join("images/operator").join(file);
        let mut value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        change(&mut value);
        fs::write(path, value.to_string()).unwrap();
    }
}

#[test]
fn what_is_no_file_is_refused_and_never_opened() {
    for name in ["crds.yaml", "SHA256SUMS", "install.yaml"] {
        assert_refused(&format!("{name} is a link: put a copy"), |dist| link(&dist.join(name)));
        assert_refused(&format!("{name} is a pipe"), |dist| {
            fs::remove_file(dist.join(name)).unwrap();
            pipe(&dist.join(name));
        });
        assert_refused(&format!("{name} is a folder"), |dist| {
            fs::remove_file(dist.join(name)).unwrap();
            fs::create_dir(dist.join(name)).unwrap();
        });
    }
    let outside = tempfile::tempdir().unwrap();
    for (n, folder) in
        ["images", "images/operator", "images/worker/blobs/sha256"].iter().enumerate()
    {
        assert_refused(&format!("{folder} is a link, not a folder"), |dist| {
            let elsewhere = outside.path().join(n.to_string());
            fs::rename(dist.join(folder), &elsewhere).unwrap();
            symlink(elsewhere, dist.join(folder)).unwrap();
        });
    }
    assert_refused("index.json is a link", |dist| {
        let (path, elsewhere) = (dist.join("images/operator/index.json"), outside.path().join("i"));
        fs::rename(&path, &elsewhere).unwrap();
        symlink(elsewhere, path).unwrap();
    });
}

/// A sparse file has a size without content, so the test needs no space.
#[test]
fn a_file_of_endless_size_is_refused_before_it_is_read() {
    for (name, limit) in [("crds.yaml", 1 << 30), ("SHA256SUMS", 16 << 20)] {
        assert_refused(&format!("such a file has at most {limit}"), |dist| {
            File::create(dist.join(name)).unwrap().set_len(1 << 40).unwrap();
        });
    }
    assert_refused("index.json has 1099511627776 bytes", |dist| {
        let path = dist.join("images/worker/index.json");
        File::create(path).unwrap().set_len(1 << 40).unwrap();
    });
}

#[test]
fn a_list_with_fewer_or_doubled_lines_is_refused() {
    for name in ["install.yaml", "sample-managed.yaml", "jobswarm_0.1.0_amd64.deb"] {
        assert_refused(&format!("{name} is missing in the list of digests"), |dist| {
            fs::remove_file(dist.join(name)).unwrap();
            sums::write(dist).unwrap();
        });
    }
    assert_refused("crds.yaml is twice in SHA256SUMS", |dist| {
        let list = fs::read_to_string(dist.join(sums::FILE)).unwrap();
        fs::write(dist.join(sums::FILE), list.repeat(2)).unwrap();
    });
    assert_refused("extra is not in SHA256SUMS", |dist| {
        fs::create_dir(dist.join("extra")).unwrap();
    });
}

#[test]
fn what_does_not_belong_to_an_image_is_refused() {
    for place in ["images", "images/operator", "images/worker/blobs", "images/worker/blobs/sha256"]
    {
        for (name, make) in [
            ("extra-file", (|path| fs::write(path, "").unwrap()) as fn(&Path)),
            ("extra-folder", |path| fs::create_dir(path).unwrap()),
        ] {
            let expected = format!("{place}/{name} does not belong to a release: remove it");
            assert_refused(&expected, |dist| make(&dist.join(place).join(name)));
        }
    }
    for file in ["oci-layout", "index.json"] {
        assert_refused(&format!("images/operator has no {file}: get the release again"), |dist| {
            fs::remove_file(dist.join("images/operator").join(file)).unwrap();
        });
    }
    assert_refused("images has no worker", |dist| {
        fs::remove_dir_all(dist.join("images/worker")).unwrap();
    });
}

#[test]
fn each_wrong_field_of_an_index_is_refused() {
    let version = |it: &mut Value| it["imageLayoutVersion"] = "2.0.0".into();
    assert_refused(
        "oci-layout has {\"imageLayoutVersion\":\"2.0.0\"}",
        edit("oci-layout", version),
    );
    let schema = |it: &mut Value| it["schemaVersion"] = 1.into();
    assert_refused("has 1 as `schemaVersion`, not 2", edit("index.json", schema));
    let kind = |it: &mut Value| it["mediaType"] = "text/plain".into();
    assert_refused("has \"text/plain\" as `mediaType`", edit("index.json", kind));
    let field = |it: &mut Value| it["subject"] = json!({});
    assert_refused("index.json has the field `subject`", edit("index.json", field));
    let descriptors: [(&str, Value, &str); 5] = [
        ("size", 1.into(), "bytes, and the image says 1"),
        ("mediaType", "text/plain".into(), "not \"application/vnd.oci.image.manifest.v1+json\""),
        ("annotations", json!({"note": ""}), "as `annotations`, not"),
        ("platform", json!({"os": "linux", "architecture": "arm64"}), "as `platform`, not"),
        ("urls", json!(["https://example.com"]), "has the field `urls`"),
    ];
    for (key, value, expected) in descriptors {
        let change = |it: &mut Value| it["manifests"][0][key] = value;
        assert_refused(expected, edit("index.json", change));
    }
    let double = |it: &mut Value| {
        it["manifests"][0]["platform"] = json!({"os": "linux", "architecture": "amd64"});
        let first = it["manifests"][0].clone();
        it["manifests"].as_array_mut().unwrap().push(first);
    };
    assert_refused("names two images for", edit("index.json", double));
}

/// Sizes and types within an image, whose own digests are right.
#[test]
fn each_wrong_descriptor_within_an_image_is_refused() {
    let changes: [(&str, Value, &str); 3] = [
        ("/layers/0/size", 1.into(), "bytes, and the image says 1"),
        ("/layers/0/mediaType", "text/plain".into(), "vnd.oci.image.layer.v1.tar+gzip"),
        ("/config/mediaType", "text/plain".into(), "vnd.oci.image.config.v1+json"),
    ];
    for (field, value, expected) in changes {
        let folder = tempfile::tempdir().unwrap();
        let operator = folder.path().join("operator");
        fixture::layout_with(&operator, "amd64", "0.1.0", b"layer", |manifest| {
            *manifest.pointer_mut(field).unwrap() = value;
        });
        let refused = Layout::at(operator).verify("0.1.0").unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
    let folder = tempfile::tempdir().unwrap();
    let operator = folder.path().join("operator");
    fixture::layout_with(&operator, "amd64", "0.1.0", b"layer", |it| it["layers"] = json!([]));
    let refused = Layout::at(operator).verify("0.1.0").unwrap_err().to_string();
    assert!(refused.ends_with("has no layers"), "{refused}");
}
