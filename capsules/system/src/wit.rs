//! Finds the interfaces in a WIT file and cuts one out of it. It reads no more of the language than that needs.

/// A part of a file that has a name: an interface or a world, with the comments above it.
#[derive(Debug, PartialEq)]
pub struct Part<'a> {
    pub name: &'a str,
    pub text: &'a str,
}

/// The package that a file declares first; empty where it declares none.
pub fn package(text: &str) -> &str {
    let words = words(text);
    let at = words.iter().position(|word| word.text == "package");
    let Some(start) = at.and_then(|at| words.get(at + 1)) else {
        return "";
    };
    let end = text[start.at..]
        .find([';', '{'])
        .map_or(text.len(), |end| start.at + end);
    text[start.at..end].trim()
}

/// Its interfaces and worlds, in order.
pub fn parts(text: &str) -> Vec<Part<'_>> {
    let words = words(text);
    let mut found = Vec::new();
    let mut next = 0;
    while next + 2 < words.len() {
        let [keyword, name, brace] = &words[next..next + 3] else {
            break;
        };
        if !matches!(keyword.text, "interface" | "world") || brace.text != "{" {
            next += 1;
            continue;
        }
        let Some(close) = closing(&words, next + 2) else {
            break;
        };
        found.push(Part {
            name: name.text.trim_start_matches('%'),
            text: &text[start_with_comments(text, keyword.at)..=words[close].at],
        });
        next = close + 1;
    }
    found
}

struct Word<'a> {
    text: &'a str,
    at: usize,
}

/// Names and single characters, without comments and space.
fn words(text: &str) -> Vec<Word<'_>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let size = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else {
            let first = rest.chars().next().map_or(1, char::len_utf8);
            let size = rest
                .find(|one| !is_name(one))
                .unwrap_or(rest.len())
                .max(first);
            if !rest.starts_with(char::is_whitespace) {
                found.push(Word {
                    text: &rest[..size],
                    at,
                });
            }
            size
        };
        at += size;
    }
    found
}

fn is_name(one: char) -> bool {
    one.is_ascii_alphanumeric() || one == '-' || one == '%'
}

/// How long a comment is that `rest` begins with; comments may hold comments.
fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// Where the brace at `open` is closed.
fn closing(words: &[Word<'_>], open: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, word) in words.iter().enumerate().skip(open) {
        match word.text {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// The start of the lines of documentation and annotations right above `at`.
fn start_with_comments(text: &str, at: usize) -> usize {
    let mut start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    if !text[start..at].trim().is_empty() {
        return at;
    }
    while start > 0 {
        let above = text[..start - 1].rfind('\n').map_or(0, |end| end + 1);
        let line = text[above..start].trim();
        if !line.starts_with("///") && !line.starts_with('@') {
            break;
        }
        start = above;
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "// interface not { }
package a:b@1.0.0; // ;

/// What one is.
@since(version = 1.0.0)
interface one {
  /* interface no /* nested { */ { */
  record r { f: string, }
  use two.{t};
}
// plain
interface %two { type t = u8; }

world w {
  import one;
  export z: interface { f: func(); }
}
";

    #[test]
    fn the_parts_of_a_file() {
        assert_eq!(package(TEXT), "a:b@1.0.0");
        let found = parts(TEXT);
        let names: Vec<_> = found.iter().map(|part| part.name).collect();
        assert_eq!(names, ["one", "two", "w"]);
        assert!(
            found[0].text.starts_with("/// What one is.\n@since"),
            "{}",
            found[0].text
        );
        assert!(
            found[0].text.ends_with("use two.{t};\n}"),
            "{}",
            found[0].text
        );
        assert_eq!(found[1].text, "interface %two { type t = u8; }");
    }

    #[test]
    fn a_package_in_braces_and_one_line() {
        let text = "package a:b { interface x { f: func() } interface y {} }";
        assert_eq!(package(text), "a:b");
        let found = parts(text);
        assert_eq!(found[0].text, "interface x { f: func() }");
        assert_eq!(found[1].text, "interface y {}");
    }

    #[test]
    fn what_is_cut_short_or_no_wit_has_no_parts() {
        for text in [
            "",
            "interface",
            "interface x {",
            "/* interface x {}",
            "{}}}",
            "ü interface",
            "package",
        ] {
            assert_eq!(parts(text), [], "{text}");
        }
        assert_eq!(package("package"), "");
        assert_eq!(package("interface x {}"), "");
    }
}
