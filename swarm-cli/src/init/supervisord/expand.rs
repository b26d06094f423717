//! Expressions such as `%(program_name)s` and `%(process_num)02d` in values.

/// A value whose expressions are replaced.
#[derive(Debug, Default)]
pub(super) struct Expanded {
    pub(super) parts: Vec<Part>,
    /// Expressions that only supervisord can replace. They stay in the text.
    pub(super) unknown: Vec<String>,
}

/// A part of a value.
#[derive(Debug)]
pub(super) enum Part {
    Text(String),
    /// The number of the process.
    Number(Format),
}

/// The least number of digits of a number; 0 is any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Format(usize);

/// Maximum number of digits of a format.
const DIGITS_MAX: usize = 20;

impl Format {
    /// Returns the name of the param with the number.
    pub(super) fn param(self) -> String {
        match self.0 {
            0 => "process_num".to_owned(),
            digits => format!("process_num_{digits}"),
        }
    }

    /// Formats a number.
    pub(super) fn of(self, number: u64) -> String {
        format!("{number:0width$}", width = self.0)
    }
}

impl Part {
    /// Returns the text for the process with this number.
    pub(super) fn of(&self, number: u64) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(format) => format.of(number),
        }
    }
}

impl Expanded {
    /// Returns the formats of the numbers in it.
    pub(super) fn formats(&self) -> impl Iterator<Item = Format> {
        self.parts.iter().filter_map(|part| match part {
            Part::Number(format) => Some(*format),
            Part::Text(_) => None,
        })
    }

    /// Whether the value is the same for each process.
    pub(super) fn is_constant(&self) -> bool {
        self.formats().next().is_none() && self.unknown.is_empty()
    }
}

/// Replaces the expressions of a program with this name.
pub(super) fn expanded(text: &str, program: &str) -> Expanded {
    let mut expanded = Expanded::default();
    let (mut literal, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('%') {
        literal.push_str(before);
        if let Some(after) = after.strip_prefix('%') {
            literal.push('%');
            rest = after;
            continue;
        }
        let Some((name, format, after)) = expression(after) else {
            literal.push('%');
            rest = after;
            continue;
        };
        match name {
            "program_name" | "group_name" => literal.push_str(program),
            "process_num" => {
                expanded.parts.push(Part::Text(std::mem::take(&mut literal)));
                expanded.parts.push(Part::Number(format));
            }
            _ => {
                let unknown = format!("%({name})s");
                literal.push_str(&unknown);
                expanded.unknown.push(unknown);
            }
        }
        rest = after;
    }
    literal.push_str(rest);
    expanded.parts.push(Part::Text(literal));
    expanded
}

/// Splits what follows `%`: `(NAME)s` or `(NAME)02d`, and the rest.
fn expression(text: &str) -> Option<(&str, Format, &str)> {
    let (name, after) = text.strip_prefix('(')?.split_once(')')?;
    let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
    let (width, after) = after.split_at(digits);
    let after = after.strip_prefix(['s', 'd'])?;
    let width = if width.is_empty() { 0 } else { width.parse::<usize>().ok()? };
    (width <= DIGITS_MAX).then_some((name, Format(width), after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_replaced_and_unknown_ones_stay() {
        let of = |text: &str| {
            let expanded = expanded(text, "celery");
            let text: String = expanded.parts.iter().map(|part| part.of(3)).collect();
            (text, expanded.unknown)
        };
        assert_eq!(of("%(program_name)s_%(process_num)02d"), ("celery_03".to_owned(), vec![]));
        assert_eq!(of("100%% %d %(process_num)d"), ("100% %d 3".to_owned(), vec![]));
        let (text, unknown) = of("%(ENV_HOME)s/%(");
        assert_eq!((&*text, unknown), ("%(ENV_HOME)s/%(", vec!["%(ENV_HOME)s".to_owned()]));
    }
}
