//! Client messages: an application's name and its numbers, in the texts that RFC 998 leaves to
//! clients (`docs/protocol §8.6`).

/// The fields of a client message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields<'a>(Vec<(&'a str, u64)>);

impl<'a> Fields<'a> {
    /// The fields of a text that is a message of this application; `None` for any other text.
    pub(crate) fn of(application: &str, text: &'a str) -> Option<Self> {
        let fields = text.strip_prefix(application)?.strip_prefix(' ')?;
        fields.split(' ').map(field).collect::<Option<Vec<_>>>().map(Self)
    }

    /// The one value of a field; two contradict each other.
    pub(crate) fn only(&self, name: &str) -> Option<u64> {
        let mut values = self.0.iter().filter(|(key, _)| *key == name).map(|(_, value)| *value);
        values.next().filter(|_| values.next().is_none())
    }
}

fn field(text: &str) -> Option<(&str, u64)> {
    let (key, value) = text.split_once('=')?;
    let plain = |c: char| c.is_ascii_lowercase() || c == '-';
    let digits = value.chars().all(|c| c.is_ascii_digit());
    let whole = !key.is_empty() && key.chars().all(plain) && digits;
    Some((key, value.parse().ok().filter(|_| whole)?))
}
