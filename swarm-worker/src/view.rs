//! Prints the view, since an image without a shell has no `cat`. Any user who may write the
//! ConfigMap can change the view, so characters that could control a terminal are escaped.

use std::io::{self, Write as _};

use swarm_adapters_host::view::BYTES_MAX;
use swarm_adapters_host::watch::{self, Contents};
use swarm_view::printable::{Form, printable};

use crate::Failure;
use crate::args::ViewArgs;

/// Prints the file of the view, valid or not, with control characters escaped.
pub(crate) fn print(args: &ViewArgs) -> Result<(), Failure> {
    let path = args.file();
    let shown = path.display();
    match watch::read(&path, BYTES_MAX) {
        Contents::Text(text) => {
            let written = io::stdout().write_all(printable(&text, Form::Lines).as_bytes());
            written.map_err(|error| Failure::Failed(format!("the view cannot be printed: {error}")))
        }
        Contents::Missing => Err(Failure::Usage(format!(
            "the view {shown} does not exist; set its path with --config-path"
        ))),
        Contents::Unreadable(reason) => {
            Err(Failure::Usage(format!("the view at {shown} cannot be read: {reason}")))
        }
    }
}
