//! What a body is and what becomes of it: text or not, its characters, its bound, and errors in words.

/// Characters returned where nothing else is asked for.
pub const DEFAULT_CHARS: usize = 20_000;
/// The most that is returned, whatever is asked for.
pub const MAX_CHARS: usize = 200_000;

#[derive(Debug, PartialEq, Eq)]
pub enum Kind {
    Text(Charset),
    Other,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum Charset {
    Utf8,
    /// ISO 8859-1 and what is taken for it: one byte, one character.
    Latin1,
}

/// Whether a body is text, by what its server says of it, or by itself where the server says nothing.
pub fn kind_of(content_type: &str, body: &[u8]) -> Kind {
    let lower = content_type.to_ascii_lowercase();
    let mut parts = lower.split(';').map(str::trim);
    let media = parts.next().unwrap_or_default();
    let charset = match parts.find_map(|part| part.strip_prefix("charset=")) {
        Some(name) => match name.trim_matches('"') {
            "iso-8859-1" | "latin1" | "windows-1252" => Charset::Latin1,
            _ => Charset::Utf8,
        },
        None => Charset::Utf8,
    };
    let is_text = match media {
        "" => std::str::from_utf8(body).is_ok_and(|text| !text.contains('\0')),
        "application/json"
        | "application/xml"
        | "application/javascript"
        | "application/x-ndjson"
        | "application/yaml"
        | "application/toml"
        | "application/x-www-form-urlencoded"
        | "application/graphql" => true,
        _ => media.starts_with("text/") || media.ends_with("+json") || media.ends_with("+xml"),
    };
    if is_text {
        Kind::Text(charset)
    } else {
        Kind::Other
    }
}

/// The characters of a body; what is no UTF-8 becomes the replacement character.
pub fn decode(charset: Charset, body: &[u8]) -> String {
    match charset {
        Charset::Utf8 => String::from_utf8_lossy(body).into_owned(),
        Charset::Latin1 => body.iter().map(|&byte| char::from(byte)).collect(),
    }
}

/// The first `wanted` characters, within the bound.
pub fn cut(text: String, wanted: usize) -> String {
    match text.char_indices().nth(wanted.min(MAX_CHARS)) {
        Some((end, _)) => text[..end].to_owned(),
        None => text,
    }
}

/// A failed request in words for a model, from the host's own word for it.
pub fn explain(url: &str, failure: &str) -> String {
    let known = [
        ("CapabilityDenied", "this capsule may not reach that host"),
        (
            "AirlockRejected",
            "the address leads to this machine or its private network, which no capsule reaches unless the operator allows it in etc/config.toml",
        ),
        (
            "RedirectBlocked",
            "it redirects to somewhere that may not be reached",
        ),
        ("TooManyRedirects", "it redirects too often"),
        (
            "InvalidRequest",
            "the address or a header is not valid; the address must be a whole http or https one",
        ),
        ("SchemeDenied", "only http and https can be fetched"),
        ("DnsError", "there is no host of that name"),
        ("TlsError", "its certificate is not accepted"),
        ("Timeout", "it did not answer in time"),
        ("ConnectionError", "nothing answers there"),
        ("BodyTooLarge", "its answer has more than 10 MiB"),
        (
            "DecompressionBomb",
            "its answer inflates to more than 10 MiB",
        ),
        ("Quota", "too many requests are running; try again"),
        ("Protocol", "it does not answer in HTTP as it should"),
    ];
    let why = known
        .iter()
        .find(|(case, _)| failure.contains(case))
        .map_or(failure, |(_, words)| words);
    format!("cannot fetch {}: {why}", cut(url.to_owned(), 300))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_what_its_server_says_is_text() {
        for media in [
            "text/html",
            "TEXT/Plain; charset=utf-8",
            "application/json",
            "application/ld+json; profile=x",
            "image/svg+xml",
        ] {
            assert_eq!(kind_of(media, b"x"), Kind::Text(Charset::Utf8), "{media}");
        }
        for media in [
            "image/png",
            "application/zip",
            "application/octet-stream",
            "video/mp4",
            "nonsense",
        ] {
            assert_eq!(kind_of(media, b"x"), Kind::Other, "{media}");
        }
    }

    #[test]
    fn without_a_type_the_bytes_say_it() {
        assert_eq!(kind_of("", "grüezi".as_bytes()), Kind::Text(Charset::Utf8));
        assert_eq!(kind_of("", b""), Kind::Text(Charset::Utf8));
        assert_eq!(kind_of("", b"\x89PNG"), Kind::Other);
        assert_eq!(kind_of("", b"a\0b"), Kind::Other);
    }

    #[test]
    fn characters_come_out_of_both_charsets() {
        for (media, body) in [
            ("text/plain; charset=ISO-8859-1", b"gr\xfcezi".as_slice()),
            (
                "text/plain; charset=\"windows-1252\"",
                b"gr\xfcezi".as_slice(),
            ),
            ("text/plain", "grüezi".as_bytes()),
        ] {
            let Kind::Text(charset) = kind_of(media, body) else {
                panic!("{media}")
            };
            assert_eq!(decode(charset, body), "grüezi");
        }
        assert_eq!(decode(Charset::Utf8, b"a\xff"), "a\u{fffd}");
    }

    #[test]
    fn a_cut_is_between_characters_and_has_a_bound() {
        assert_eq!(cut("äöü".to_owned(), 2), "äö");
        assert_eq!(cut("äöü".to_owned(), 3), "äöü");
        assert_eq!(cut("äöü".to_owned(), 0), "");
        assert_eq!(cut("x".repeat(MAX_CHARS + 1), usize::MAX).len(), MAX_CHARS);
    }

    #[test]
    fn a_failure_is_told_in_words() {
        assert_eq!(
            explain(
                "http://a/",
                "Host function call failed: ErrorCode::DnsError"
            ),
            "cannot fetch http://a/: there is no host of that name"
        );
        assert_eq!(
            explain(
                "http://a/",
                "Host function call failed: ErrorCode::Unknown(\"why\")"
            ),
            "cannot fetch http://a/: Host function call failed: ErrorCode::Unknown(\"why\")"
        );
        assert!(explain(&"x".repeat(5000), "Timeout").len() < 400);
    }
}
