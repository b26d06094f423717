//! Texts of other tools that list programs or addresses, recognized by their content and their name.

use std::net::IpAddr;
use std::path::Path;

use serde_json::Value;

use crate::{hostport, yaml};

/// The most bytes of a text that is looked at.
pub const BYTES_MAX: usize = 4 << 20;

/// The format of another tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// An INI file, such as a `supervisord.conf`.
    Ini,
    /// Lines `NAME: COMMAND`.
    Procfile,
    /// A list of targets for Prometheus, as JSON or YAML.
    FileSd,
    /// A playlist, `m3u` or `m3u8`.
    Playlist,
    /// Addresses, one a line.
    Addresses,
}

impl Foreign {
    /// Returns the format of a text in a file of this name; `None` for any other text. O(length).
    ///
    /// ```
    /// use swarm_spec::foreign::Foreign;
    ///
    /// let ini = "; programs\n[program:web]\ncommand=serve\n";
    /// assert_eq!(Foreign::of("a", ini), Some(Foreign::Ini));
    /// let lines = "web: serve --port 80\n";
    /// assert_eq!(Foreign::of("Procfile", lines), Some(Foreign::Procfile));
    /// assert_eq!(Foreign::of("a.yaml", lines), None, "it is YAML as well");
    /// assert_eq!(Foreign::of("a", "rtsp://a/1\n"), Some(Foreign::Addresses));
    /// ```
    #[must_use]
    pub fn of(name: &str, text: &str) -> Option<Self> {
        if BYTES_MAX < text.len() {
            return None;
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let is = |format: Self, is: bool| is.then_some(format);
        is(Self::Playlist, is_playlist(text))
            .or_else(|| is(Self::Ini, is_ini(text)))
            .or_else(|| is(Self::Procfile, is_procfile_name(name) && is_procfile(text)))
            .or_else(|| is(Self::Addresses, are_addresses(text)))
            .or_else(|| is(Self::FileSd, is_file_sd(text)))
    }

    /// Returns the format in words.
    #[must_use]
    pub fn what(self) -> &'static str {
        match self {
            Self::Ini => "an INI file, such as a supervisord.conf",
            Self::Procfile => "a Procfile",
            Self::FileSd => "a list of targets for Prometheus",
            Self::Playlist => "a playlist",
            Self::Addresses => "a list of addresses",
        }
    }

    /// Returns the advice about such a text instead of a manifest.
    #[must_use]
    pub fn advice(self) -> String {
        format!("this is {} and no manifest; `swarm init --from FILE` makes one of it", self.what())
    }
}

/// Whether a line is an address: `SCHEME://…`, `HOST:PORT`, `HOST,PORT`, an IP address, or a name with
/// a dot.
#[must_use]
pub fn is_address(line: &str) -> bool {
    let has_scheme = line.split_once("://").is_some_and(|(scheme, rest)| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
        is_scheme && scheme.chars().all(is_plain) && !rest.is_empty()
    });
    let is_host = || {
        let is_label = |label: &str| {
            !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        };
        line.parse::<IpAddr>().is_ok() || line.contains('.') && line.split('.').all(is_label)
    };
    let is_host_port = || hostport::parts(line).is_some() || hostport::job_of(line).is_some();
    !line.contains(char::is_whitespace) && (has_scheme || is_host_port() || is_host())
}

fn is_playlist(text: &str) -> bool {
    text.lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .is_some_and(|line| line.starts_with("#EXTM3U") || line.starts_with("#EXTINF:"))
}

/// Whether the first line after the comments is a section, and a later one is a setting.
fn is_ini(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim);
    let Some(first) = lines.find(|it| !it.is_empty() && !it.starts_with([';', '#'])) else {
        return false;
    };
    let is_inner = |c: char| c.is_ascii_alphanumeric() || "_-.:@ /".contains(c);
    let section = first.strip_prefix('[').and_then(|it| it.split_once(']'));
    let is_section = section.is_some_and(|(name, rest)| {
        let is_end = rest.trim().is_empty() || rest.trim_start().starts_with([';', '#']);
        !name.is_empty() && name.chars().all(is_inner) && is_end
    });
    let is_setting = |line: &str| {
        let name = line.split_once('=').map(|(name, _)| name.trim());
        name.is_some_and(|name| !name.is_empty() && name.chars().all(is_inner))
    };
    is_section && lines.any(is_setting)
}

fn is_procfile_name(name: &str) -> bool {
    let name = Path::new(name).file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    name.starts_with("procfile") || name.ends_with(".procfile")
}

/// Returns the process type and the command of a line of a Procfile; `None` for any other line.
#[must_use]
pub fn process(line: &str) -> Option<(&str, &str)> {
    let (name, command) = line.split_once(':')?;
    let is_inner = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let is_name = !name.is_empty() && name.chars().all(is_inner);
    let command = command.trim();
    (is_name && !command.is_empty()).then_some((name, command))
}

/// Whether every line has the form of a Procfile. A flat YAML map has it, too.
#[must_use]
pub fn is_procfile(text: &str) -> bool {
    let mut lines = hostport::lines(text).peekable();
    lines.peek().is_some() && lines.all(|(_, line)| process(line).is_some())
}

fn are_addresses(text: &str) -> bool {
    let mut lines = hostport::lines(text).peekable();
    lines.peek().is_some() && lines.all(|(_, line)| is_address(line))
}

fn is_file_sd(text: &str) -> bool {
    let documents = yaml::documents(text).unwrap_or_default();
    let [(_, Value::Array(groups))] = documents.as_slice() else { return false };
    !groups.is_empty() && groups.iter().all(|group| group["targets"].is_array())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_no_text_of_another_tool() {
        let manifest = "apiVersion: swarm.k8slab.info/v1alpha1\nkind: Swarm\nmetadata: {name: a}\n";
        for text in
            [manifest, "", "# only\n", "[]", "[a, b]", "[a]\n", "a: 1\n", "{\"a\": 1}", "a b"]
        {
            assert_eq!(Foreign::of("cameras.yaml", text), None, "{text}");
        }
    }

    #[test]
    fn each_format_is_recognized_by_its_content() {
        for (text, format) in [
            ("#EXTM3U\n#EXTINF:-1 tvg-id=\"a\",A\nhttp://a/1\n", Foreign::Playlist),
            ("[unix_http_server]\nfile=/a\n", Foreign::Ini),
            ("; a\n[program:a] ; b\ncommand = x\n", Foreign::Ini),
            ("[{\"targets\": [\"a:1\"]}]", Foreign::FileSd),
            ("- targets: [a]\n  labels: {b: c}\n", Foreign::FileSd),
            ("# a\na:80\n[::1]:90\nb,80\nhttp://a\n10.0.0.1\n::1\ncam-1.lan\n", Foreign::Addresses),
        ] {
            assert_eq!(Foreign::of("a", text), Some(format), "{text}");
        }
    }
}
