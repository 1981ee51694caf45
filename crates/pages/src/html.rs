//! The parts of a page: text, its head and end, a table, an entry of a legend.

/// The style sheet of pages with tables and framed plots.
const STYLE: &str = include_str!("style.css");

/// A page of this title with the body's elements.
pub fn page(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n{body}</html>\n"
    )
}

/// A table with the rows of its head and those of its body.
pub fn table(head: &str, body: &str) -> String {
    format!("<div class=\"scroll\"><table><thead>{head}<tbody>{body}</table></div>\n")
}

/// An entry of a legend: a symbol of the plot, in a box of 16 by 12 pixels, and its meaning.
pub fn legend_entry(sign: &str, meaning: &str) -> String {
    format!("<span><svg viewBox=\"0 0 16 12\">{sign}</svg>{meaning}</span>\n")
}

/// Text for an element or an attribute. A program's output may have control characters, which XML
/// does not allow.
pub fn escape(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, c| {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_markup() {
        assert_eq!(escape("a\n<b \"c\"> & d\u{1b}"), "a &lt;b &quot;c&quot;&gt; &amp; d ");
    }
}
