//! Copies this program into a directory, since an image without a shell has no `cp`.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;

use swarm_adapters_host::file;

use crate::Failure;
use crate::args::InstallArgs;

/// The name of the copy.
const NAME: &str = "swarm-worker";

/// This program. The path stays valid if the program's file is replaced or removed.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Copies this program into the directory, and prints the path of the copy.
pub(crate) fn install(args: &InstallArgs) -> Result<(), Failure> {
    let dir = &args.dir;
    let shown = dir.display();
    match fs::metadata(dir) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => {
            return Err(Failure::Usage(format!(
                "{shown} is not a directory; name the one to copy to"
            )));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let sentence =
                format!("directory {shown} does not exist; make it, or mount a volume there");
            return Err(Failure::Usage(sentence));
        }
        Err(error) => return Err(Failure::Failed(format!("{shown} cannot be opened: {error}"))),
    }
    let program = File::open(THIS_PROGRAM)
        .map_err(|error| Failure::Failed(format!("{THIS_PROGRAM} cannot be read: {error}")))?;
    let path = dir.join(NAME);
    file::replace_program(&path, program).map_err(|error| refused(&path, &error))?;
    // The program is installed even if this line cannot be printed.
    let _ = writeln!(io::stdout(), "installed {}", path.display());
    Ok(())
}

/// Adds advice to the error about a directory that the program could not be written to.
fn refused(path: &Path, error: &io::Error) -> Failure {
    let advice = match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "; name a directory that this user may write to, such as a volume of type emptyDir"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "; make room, or raise the sizeLimit of the volume"
        }
        ErrorKind::IsADirectory => "; a directory has that name: remove it",
        _ => "",
    };
    Failure::Failed(format!("{} cannot be written: {error}{advice}", path.display()))
}
