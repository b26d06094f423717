//! Files of a job, which are rendered from templates of its runner.
//!
//! A template is MiniJinja text. It loads no other file, knows no undefined variable, and has a
//! limit of work. The size of all files of a job has a limit, too.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};

use crate::error::SpecError;
use crate::template::Values;
use crate::yaml::printable;

/// The most files of a runner.
const FILES_MAX: usize = 16;
/// The most bytes of the name of a file.
const NAME_MAX: usize = 100;
/// The work of one template, in the units of the library. A unit is an instruction or 64 bytes of
/// values, so one template uses at most about 32 MiB.
const FUEL: u64 = 500_000;

/// The most words and signs between two braces of a template.
const SIGNS_MAX: usize = 200;
/// The most `elif` in a template.
const CONDITIONS_MAX: usize = 100;
/// The variables of a template.
const VARIABLES: [&str; 4] = ["job", "token", "worker", "params"];

/// The most bytes of all files of one job.
pub const FILES_BYTES_MAX: usize = 1 << 20;

/// The templates of a job's files, by the names of the files. Each has a valid syntax.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files(BTreeMap<String, String>);

impl Files {
    /// Reads the templates of the field `place`.
    ///
    /// # Errors
    ///
    /// [`SpecError`] names the file, and the line of a template with a mistake.
    pub(super) fn read(
        place: &str,
        spec: Option<&BTreeMap<String, String>>,
    ) -> Result<Self, SpecError> {
        let wrong = |reason| Err(SpecError { place: place.to_owned(), reason });
        let Some(templates) = spec else { return Ok(Self::default()) };
        if templates.is_empty() || FILES_MAX < templates.len() {
            let count = templates.len();
            let reason = format!("it has {count} files; write 1 to {FILES_MAX}, or leave it out");
            return wrong(reason);
        }
        for (name, text) in templates {
            if !is_file_name(name) {
                let reason = format!(
                    "`{}` cannot name a file; use a-z, A-Z, 0-9, `.`, `_` and `-`, at most \
                     {NAME_MAX}, and begin with none of `.` and `-`",
                    name.escape_default()
                );
                return wrong(reason);
            }
            check(text).map_err(|reason| SpecError { place: format!("{place}.{name}"), reason })?;
        }
        Ok(Self(templates.clone()))
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Renders the files of a job, by name. `values.params` has the params of Secrets, too. Values
    /// are text: template syntax in them has no effect.
    ///
    /// # Errors
    ///
    /// A part of a sentence that names the file and the line. With [`Detail::Hidden`] it has nothing
    /// that depends on values.
    pub fn render(
        &self,
        values: &Values<'_>,
        detail: Detail,
    ) -> Result<Vec<(&str, Vec<u8>)>, String> {
        let environment = environment();
        let params = values.params.iter();
        let params = params.map(|(name, value)| (name.as_str(), Value::from(value.as_str())));
        let context = Value::from_pairs([
            ("job", Value::from(values.job)),
            ("token", Value::from(values.token)),
            ("worker", Value::from(values.worker)),
            ("params", Value::from_pairs(params)),
        ]);
        let (mut left, mut files) = (FILES_BYTES_MAX, Vec::new());
        for (name, text) in &self.0 {
            let mut file = Limited { left, bytes: Vec::new(), is_full: false };
            let template = environment.template_from_str(text);
            let rendered =
                template.and_then(|it| it.render_captured_to(&context, &mut file).map(drop));
            if file.is_full {
                return Err(format!(
                    "files.{name}: all files of a job have more than {FILES_BYTES_MAX} bytes; write less"
                ));
            }
            let failed = |error| format!("files.{name}: {}", sentence(&error, detail));
            rendered.map_err(failed)?;
            left -= file.bytes.len();
            files.push((name.as_str(), file.bytes));
        }
        Ok(files)
    }
}

/// The contents of a message about a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The message may have parts of values.
    Shown,
    /// The message has the kind of the mistake and its line only, since values may be secrets.
    Hidden,
}

/// Whether a file in a directory of its own can have this name.
fn is_file_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    name.len() <= NAME_MAX
        && name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && name.chars().all(is_plain)
}

/// Checks the syntax of a template and the names of its variables.
fn check(text: &str) -> Result<(), String> {
    check_nesting(text)?;
    let environment = environment();
    let template = environment.template_from_str(text);
    let template = template.map_err(|error| sentence(&error, Detail::Shown))?;
    let is_known = |name: &String| {
        VARIABLES.contains(&name.as_str()) || environment.globals().any(|(it, _)| it == name)
    };
    let unknown: BTreeSet<_> = template.undeclared_variables(false).into_iter().collect();
    match unknown.iter().find(|name| !is_known(name)) {
        Some(name) => Err(format!(
            "`{}` is not a variable; write job, token, worker or params.NAME",
            printable(name)
        )),
        None => Ok(()),
    }
}

/// Refuses long expressions and long chains of conditions. The parser calls itself for each step of
/// them, so they would fill the stack of a thread.
fn check_nesting(text: &str) -> Result<(), String> {
    let (mut signs, mut conditions) = (0, 0);
    // The parser reports an invalid token.
    for (token, span) in tokenize(text, false, SyntaxConfig::default()).map_while(Result::ok) {
        match token {
            Token::TemplateData(_) | Token::VariableStart | Token::BlockStart => signs = 0,
            Token::Ident("elif") if signs == 0 => (signs, conditions) = (1, conditions + 1),
            _ => signs += 1,
        }
        let reason = if SIGNS_MAX < signs {
            format!("an expression has more than {SIGNS_MAX} words and signs; divide it by `set`")
        } else if CONDITIONS_MAX < conditions {
            format!("it has more than {CONDITIONS_MAX} `elif`; write fewer")
        } else {
            continue;
        };
        return Err(format!("line {}: {reason}", span.start_line));
    }
    Ok(())
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    // The name of a file decides nothing: a template quotes where its format needs it.
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    // Many programs expect a newline at the end of a file.
    if let Ok(syntax) = SyntaxConfig::builder().keep_trailing_newline(true).build() {
        environment.set_syntax(syntax);
    }
    environment.set_fuel(Some(FUEL));
    environment
}

/// A message about a template, with its line. Messages about the text itself have no values.
fn sentence(error: &Error, detail_of_values: Detail) -> String {
    let line = error.line().map(|line| format!("line {line}: ")).unwrap_or_default();
    let is_of_text = matches!(
        error.kind(),
        ErrorKind::SyntaxError
            | ErrorKind::UndefinedError
            | ErrorKind::UnknownFilter
            | ErrorKind::UnknownTest
            | ErrorKind::UnknownFunction
    );
    let reason = match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => "the template does too much work; write a shorter one".into(),
        (ErrorKind::UndefinedError, Some(detail)) => detail.to_owned(),
        (kind, Some(detail)) if is_of_text || detail_of_values == Detail::Shown => {
            format!("{kind}: {detail}")
        }
        (kind, _) => kind.to_string(),
    };
    printable(&format!("{line}{reason}"))
}

/// A file in memory that takes a limited number of bytes.
struct Limited {
    left: usize,
    bytes: Vec<u8>,
    is_full: bool,
}

impl io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left < self.bytes.len() + bytes.len() {
            self.is_full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
