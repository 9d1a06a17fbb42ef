//! What happens to text, without a file in sight.

/// A message on the bus holds one MiB; this leaves room for what stands around the text.
const MAX_ANSWER_BYTES: usize = 1024 * 1024 - 4096;

/// Lines `first` to `last` of `text`, counted from 1, both included. `Err` says what is wrong with the numbers.
pub fn lines(text: &str, first: Option<usize>, last: Option<usize>) -> Result<&str, String> {
    if first.is_none() && last.is_none() {
        return Ok(text);
    }
    let (first, last) = (first.unwrap_or(1), last.unwrap_or(usize::MAX));
    if first == 0 || last < first {
        return Err(format!(
            "lines {first} to {last} are no range: the first line is 1"
        ));
    }
    let starts = || std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
    let count = starts().filter(|start| *start < text.len()).count();
    if first > count {
        return Err(format!(
            "it has {count} lines, and line {first} was asked for"
        ));
    }
    let start = starts().nth(first - 1).unwrap_or(text.len());
    let end = starts().nth(last).unwrap_or(text.len());
    Ok(&text[start..end])
}

/// `text` with the one place where `old` stands replaced. `Err` says why there is not one.
pub fn replace_once(text: &str, old: &str, new: &str) -> Result<String, String> {
    if old.is_empty() {
        return Err("old_string is empty: say what to replace".to_string());
    }
    let Some(at) = text.find(old) else {
        return Err(
            "old_string is not in the file: read it again, every character counts".to_string(),
        );
    };
    let step = old.chars().next().map_or(1, char::len_utf8);
    if text[at + step..].contains(old) {
        return Err(
            "old_string is in the file more than once: take in more of the lines around it"
                .to_string(),
        );
    }
    Ok(format!("{}{new}{}", &text[..at], &text[at + old.len()..]))
}

/// Whether an answer of this text fits into one message, where it is a JSON string inside of a JSON string.
pub fn fits(text: &str) -> bool {
    if text.len() > MAX_ANSWER_BYTES {
        return false;
    }
    let size: usize = text
        .bytes()
        .map(|byte| match byte {
            b'"' | b'\\' => 4,
            b'\n' | b'\r' | b'\t' | 8 | 12 => 3,
            0..=31 => 7,
            _ => 1,
        })
        .sum();
    size <= MAX_ANSWER_BYTES
}

/// `path` and the name of something in that folder.
pub fn join(folder: &str, name: &str) -> String {
    match folder {
        "" | "." => name.to_string(),
        _ if folder.ends_with('/') => format!("{folder}{name}"),
        _ => format!("{folder}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: &str = "one\ntwo\nthree\n";

    #[test]
    fn a_range_of_lines_is_taken_whole() {
        assert_eq!(lines(THREE, None, None), Ok(THREE));
        assert_eq!(lines(THREE, Some(2), None), Ok("two\nthree\n"));
        assert_eq!(lines(THREE, None, Some(1)), Ok("one\n"));
        assert_eq!(lines(THREE, Some(2), Some(2)), Ok("two\n"));
        assert_eq!(lines(THREE, Some(3), Some(99)), Ok("three\n"));
        assert_eq!(lines("a\nb", Some(2), Some(2)), Ok("b"));
        assert_eq!(lines("a\n\nb", Some(2), Some(2)), Ok("\n"));
    }

    #[test]
    fn numbers_that_name_no_line_are_told() {
        assert_eq!(
            lines(THREE, Some(4), None),
            Err("it has 3 lines, and line 4 was asked for".to_string())
        );
        assert!(lines(THREE, Some(0), None).is_err());
        assert!(lines(THREE, Some(2), Some(1)).is_err());
        assert!(lines("", Some(1), None).is_err());
    }

    #[test]
    fn one_place_is_replaced() {
        assert_eq!(replace_once("a b c", "b", "xyz"), Ok("a xyz c".to_string()));
        assert_eq!(replace_once("süß", "üß", ""), Ok("s".to_string()));
        assert_eq!(replace_once("b", "b", "b"), Ok("b".to_string()));
    }

    #[test]
    fn no_place_and_two_places_are_refused() {
        for (text, old) in [
            ("a", "b"),
            ("b b", "b"),
            ("aaa", "aa"),
            ("ééé", "éé"),
            ("a", ""),
        ] {
            assert!(replace_once(text, old, "x").is_err(), "{text} {old}");
        }
    }

    #[test]
    fn an_answer_is_measured_as_it_will_be_written() {
        for text in ["\"", "\\", "\n", "\t", "\u{1}", "é", "a", "\u{7f}"] {
            let many = text.repeat(1000);
            let inner = serde_json::to_string(&many).unwrap();
            let outer = serde_json::to_string(&inner).unwrap().len() - 6; // the quotes around both
            let per_text = MAX_ANSWER_BYTES * 1000 / outer;
            assert!(fits(&text.repeat(per_text)), "{text:?}");
            assert!(!fits(&text.repeat(per_text + 2)), "{text:?}");
        }
    }

    #[test]
    fn a_name_is_put_below_its_folder() {
        assert_eq!(join(".", "a"), "a");
        assert_eq!(join("", "a"), "a");
        assert_eq!(join("cwd://", "a"), "cwd://a");
        assert_eq!(join("src/", "a"), "src/a");
        assert_eq!(join("src", "a"), "src/a");
    }
}
