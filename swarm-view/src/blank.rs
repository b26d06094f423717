//! Blanks the passwords of addresses in quoted output.

use std::borrow::Cow;

use http::Uri;

/// The end of a scheme.
const SCHEME: &str = "://";

/// The sign for a blanked part.
pub const MARK: &str = "***";

/// Signs after an address in a sentence.
const AFTER: [char; 12] = [':', ',', ';', '.', ')', ']', '}', '\'', '`', '…', '!', '\\'];

/// Blanks the user information and the query values of all addresses in a text, and an address that
/// cannot be parsed up to the next space. O(length).
#[must_use]
pub fn blanked(text: &str) -> Cow<'_, str> {
    if !text.contains(SCHEME) {
        return Cow::Borrowed(text);
    }
    let (mut clean, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, from)) = rest.split_once(SCHEME) {
        let is_of_scheme = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
        let scheme = &before[before.trim_end_matches(is_of_scheme).len()..];
        let end = from.find(|c: char| c.is_whitespace() || c == '"').unwrap_or(from.len());
        let (word, after) = from.split_at(end);
        let address = word.trim_end_matches(AFTER);
        clean.extend([before, SCHEME]);
        match Address::of(scheme, address) {
            Some(parts) => parts.write(&mut clean),
            None if address.starts_with('/') && !address.contains(['@', '?']) => {
                clean.push_str(address);
            }
            None => clean.push_str(MARK),
        }
        clean.push_str(&word[address.len()..]);
        rest = after;
    }
    clean.push_str(rest);
    if clean == text { Cow::Borrowed(text) } else { Cow::Owned(clean) }
}

/// Parts of an address behind its scheme.
struct Address<'a> {
    has_user: bool,
    host: &'a str,
    path: &'a str,
    query: Option<&'a str>,
    has_fragment: bool,
}

impl<'a> Address<'a> {
    /// Returns the parts; `None` for an address whose user information may be elsewhere than a parser
    /// finds it, as with `@`, `/` or `?` in a password.
    fn of(scheme: &str, text: &'a str) -> Option<Self> {
        let (main, fragment) = text.split_once('#').map_or((text, None), |(a, b)| (a, Some(b)));
        let uri: Uri = format!("{scheme}{SCHEME}{main}").parse().ok()?;
        let authority = uri.authority()?;
        let (authority, rest) = main.split_at_checked(authority.as_str().len())?;
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let (path, query) = rest.split_once('?').map_or((rest, None), |(a, b)| (a, Some(b)));
        let has_port = host.rsplit_once(']').map_or(host, |(_, after)| after).contains(':');
        let is_plain = !rest.contains('@') && !fragment.is_some_and(|it| it.contains('@'));
        let has_user = host.len() < authority.len();
        let has_fragment = fragment.is_some();
        let is_clear = is_plain && (!has_port || uri.port_u16().is_some());
        is_clear.then_some(Self { has_user, host, path, query, has_fragment })
    }

    fn write(&self, clean: &mut String) {
        if self.has_user {
            clean.extend([MARK, "@"]);
        }
        clean.extend([self.host, self.path]);
        for (number, part) in self.query.into_iter().flat_map(|it| it.split('&')).enumerate() {
            clean.push(if number == 0 { '?' } else { '&' });
            match part.split_once('=') {
                Some((name, value)) => {
                    clean.extend([name, "=", if value.is_empty() { "" } else { MARK }]);
                }
                None if part.is_empty() => {}
                None => clean.push_str(MARK),
            }
        }
        if self.has_fragment {
            clean.extend(["#", MARK]);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn users_and_query_values_are_blanked_and_the_place_stays() {
        for (text, clean) in [
            ("rtsp://admin:pw@10.0.0.1:554/a: 401", "rtsp://***@10.0.0.1:554/a: 401"),
            ("rtsp://admin:pw-X@cam: refused", "rtsp://***@cam: refused"),
            ("see http://h/x?password=X: no", "see http://h/x?password=***: no"),
            ("(http://h/?a=1&b&c=)", "(http://h/?a=***&***&c=)"),
            ("http://key@host", "http://***@host"),
            ("rtsp://admin:p@w@cam/1", "rtsp://***@cam/1"),
            ("http://u:p@[::1]:80/x", "http://***@[::1]:80/x"),
            ("http://h/a#token", "http://h/a#***"),
            (r#"["a://u:p@h","b://u:p@i"]"#, r#"["a://***@h","b://***@i"]"#),
            // A parser finds another host than the camera.
            ("rtsp://admin:p/w@cam/1 x", "rtsp://*** x"),
            ("rtsp://admin:12?w@cam/1", "rtsp://***"),
            ("rtsp://admin:12#w@cam/1", "rtsp://***"),
            ("://u:p@h", "://***@h"),
            ("http://h/rtsp://u:p@h", "http://***"),
        ] {
            assert_eq!(blanked(text), clean);
            assert_eq!(blanked(clean), clean, "the second time");
        }
        for text in [
            "http://host:80/a, https://a.b/c.",
            "file:///var/video: no such file",
            "user@host a=b no camera",
            "",
        ] {
            assert_eq!(blanked(text), text);
        }
    }

    proptest! {
        /// Scope: any password without a space.
        #[test]
        fn no_part_of_a_password_stays(
            password in "[!#-~]{0,12}",
            user in "[a-z]{0,5}",
            path in "[a-z0-9/]{0,8}",
        ) {
            let secret = format!("Zq{password}Zq");
            for text in [
                format!("x rtsp://{user}:{secret}@camera.lan/{path} y"),
                format!("x http://camera.lan/{path}?{user}={secret} y"),
            ] {
                let clean = blanked(&text);
                prop_assert!(!clean.contains("Zq"), "{text}: {clean}");
                prop_assert!(clean.starts_with("x ") && clean.ends_with(" y"), "{clean}");
            }
        }
    }
}
