//! Lists, maps and values of a bounded size: what is parsed takes many times its text, so the parser counts.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Parts that a free value may have, itself counted.
const MAX_PARTS: usize = 64;

/// A list of at most `N` items. For `#[serde(deserialize_with)]`.
///
/// # Errors
/// What is no list, or a longer one.
pub fn limited_list<'de, D, T, const N: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct List<T, const N: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for List<T, N> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {N}")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
            let mut items = Vec::new();
            while let Some(item) = seq.next_element()? {
                if items.len() == N {
                    return Err(A::Error::invalid_length(N + 1, &self));
                }
                items.push(item);
            }
            Ok(items)
        }
    }

    deserializer.deserialize_seq(List::<T, N>(PhantomData))
}

/// As [`limited_list`], or null.
///
/// # Errors
/// As [`limited_list`].
pub fn limited_list_or_null<'de, D, T, const N: usize>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Limited<T, const N: usize>(Vec<T>);

    impl<'de, T: Deserialize<'de>, const N: usize> Deserialize<'de> for Limited<T, N> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            limited_list::<D, T, N>(deserializer).map(Self)
        }
    }

    let list = Option::<Limited<T, N>>::deserialize(deserializer)?;
    Ok(list.map(|list| list.0))
}

/// Entries by name, at most `N`, each name once. For `#[serde(deserialize_with)]`.
///
/// # Errors
/// What is no object, or one with more entries or with a name twice.
pub fn limited_map<'de, D, T, M, const N: usize>(deserializer: D) -> Result<M, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
    M: FromIterator<(String, T)>,
{
    struct Entries<T, M, const N: usize>(PhantomData<(T, M)>);

    impl<'de, T, M, const N: usize> Visitor<'de> for Entries<T, M, N>
    where
        T: Deserialize<'de>,
        M: FromIterator<(String, T)>,
    {
        type Value = M;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "an object of at most {N} entries")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<M, A::Error> {
            let mut entries: Vec<(String, T)> = Vec::new();
            while let Some(name) = map.next_key::<String>()? {
                if entries.len() == N {
                    return Err(A::Error::invalid_length(N + 1, &self));
                }
                if entries.iter().any(|(known, _)| *known == name) {
                    return Err(A::Error::custom(format_args!(
                        "`{}` is there twice",
                        super::error::shown(&name)
                    )));
                }
                entries.push((name, map.next_value()?));
            }
            Ok(entries.into_iter().collect())
        }
    }

    deserializer.deserialize_map(Entries::<T, M, N>(PhantomData))
}

/// As [`limited_map`]; null is no entries.
///
/// # Errors
/// As [`limited_map`].
pub fn limited_map_or_null<'de, D, T, M, const N: usize>(deserializer: D) -> Result<M, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
    M: FromIterator<(String, T)> + Default,
{
    struct Limited<T, M, const N: usize>(M, PhantomData<T>);

    impl<'de, T, M, const N: usize> Deserialize<'de> for Limited<T, M, N>
    where
        T: Deserialize<'de>,
        M: FromIterator<(String, T)>,
    {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            limited_map::<D, T, M, N>(deserializer).map(|entries| Self(entries, PhantomData))
        }
    }

    let entries = Option::<Limited<T, M, N>>::deserialize(deserializer)?;
    Ok(entries.map(|entries| entries.0).unwrap_or_default())
}

/// What null stands for: the value of a field that is left out. For `#[serde(deserialize_with)]`.
///
/// # Errors
/// Those of the value.
pub fn default_for_null<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A value of at most 64 parts, whatever it is. For `#[serde(deserialize_with)]`.
///
/// # Errors
/// A value of more parts.
pub fn limited_value<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    let mut left = MAX_PARTS;
    Part(&mut left).deserialize(deserializer)
}

/// A value, counted.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitedValue(pub Value);

impl<'de> Deserialize<'de> for LimitedValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        limited_value(deserializer).map(Self)
    }
}

struct Part<'a>(&'a mut usize);

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        *self.0 = self.0.checked_sub(1).ok_or_else(|| {
            D::Error::custom(format_args!("more than {MAX_PARTS} numbers, lists and entries"))
        })?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value);
        number
            .map(Value::Number)
            .ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(Part(self.0))? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            entries.insert(name, map.next_value_seed(Part(self.0))?);
        }
        Ok(Value::Object(entries))
    }
}
