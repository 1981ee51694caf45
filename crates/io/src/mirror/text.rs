//! Names in messages: any bytes as the text of base64, for `serde(with)`.

use data_encoding::BASE64;
use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&BASE64.encode(bytes))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
    BASE64.decode(text.as_bytes()).map_err(D::Error::custom)
}

/// The same for lists of names.
pub(super) mod list {
    use data_encoding::BASE64;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(in crate::mirror) fn serialize<S: Serializer>(
        names: &[Vec<u8>],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(names.iter().map(|name| BASE64.encode(name)))
    }

    pub(in crate::mirror) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Vec<u8>>, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        let names = names.iter().map(|name| BASE64.decode(name.as_bytes()));
        names.collect::<Result<_, _>>().map_err(D::Error::custom)
    }
}
