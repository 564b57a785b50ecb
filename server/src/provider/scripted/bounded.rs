//! Functions of the language that could take memory without a bound in a single step, where
//! nothing can stop them: here they know their bound before. They shadow those of the language.
//!
//! Texts are shared by all values that hold them, so that a small map can be written out as a
//! very large text.

use std::cell::Cell;
use std::fmt::{self, Write};

use rhai::{
    Array, Dynamic, Engine, EvalAltResult, FnPtr, FuncRegistration, ImmutableString, Map,
    NativeCallContext, Position,
};

use super::Settings;

type Error = Box<EvalAltResult>;

thread_local! {
    /// Whether the running script has shown a value that was too large.
    static OVERSIZED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a value was too large to be written out since this was last reset.
pub(super) fn oversized() -> bool {
    OVERSIZED.get()
}

/// Forgets what an earlier script did on this thread.
pub(super) fn reset() {
    OVERSIZED.set(false);
}

pub(super) fn too_large(what: &str) -> Error {
    Box::new(EvalAltResult::ErrorDataTooLarge(what.to_owned(), Position::NONE))
}

/// Refuses a value that is larger than one that the language lets grow.
pub(super) fn check(engine: &Engine, value: &Dynamic) -> Result<(), Error> {
    engine.ensure_data_size_within_limits(value)
}

/// A text that ends at a length.
struct Bounded {
    text: String,
    limit: usize,
}

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.text.len() + text.len() > self.limit {
            return Err(fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}

impl Bounded {
    fn array(&mut self, array: &Array) -> fmt::Result {
        self.write_char('[')?;
        for (position, value) in array.iter().enumerate() {
            if position > 0 {
                self.write_str(", ")?;
            }
            self.value(value)?;
        }
        self.write_char(']')
    }

    fn map(&mut self, map: &Map) -> fmt::Result {
        self.write_str("#{")?;
        for (position, (key, value)) in map.iter().enumerate() {
            if position > 0 {
                self.write_str(", ")?;
            }
            write!(self, "{key:?}: ")?;
            self.value(value)?;
        }
        self.write_char('}')
    }

    fn value(&mut self, value: &Dynamic) -> fmt::Result {
        if let Some(array) = value.read_lock::<Array>() {
            self.array(&array)
        } else if let Some(map) = value.read_lock::<Map>() {
            self.map(&map)
        } else if let Ok(character) = value.as_char() {
            self.write_char(character)
        } else if let Some(pointer) = value.read_lock::<FnPtr>() {
            write!(self, "{}", *pointer)
        } else {
            write!(self, "{value:?}")
        }
    }
}

/// Writes a value out. One that is too large ends the script with its next step: an error would
/// make the language write it out by itself.
fn show(limit: usize, write: impl FnOnce(&mut Bounded) -> fmt::Result) -> ImmutableString {
    let mut shown = Bounded { text: String::new(), limit };
    if write(&mut shown).is_err() {
        OVERSIZED.set(true);
        return ImmutableString::new();
    }
    shown.text.into()
}

/// A value as text, none if that is too long.
pub(super) fn text(value: &Dynamic, limit: usize) -> Option<String> {
    let mut shown = Bounded { text: String::new(), limit };
    let written = if value.is_array() || value.is_map() {
        shown.value(value)
    } else {
        write!(shown, "{value}")
    };
    written.is_ok().then_some(shown.text)
}

pub(super) fn register(engine: &mut Engine, settings: &Settings) {
    let (max_string, max_elements) = (settings.max_string, settings.max_elements);
    // They take copies: what a function may change is checked after it, and refused for its size.
    for name in ["to_string", "to_debug", "print", "debug"] {
        engine.register_fn(name, move |array: Array| show(max_string, |to| to.array(&array)));
        engine.register_fn(name, move |map: Map| show(max_string, |to| to.map(&map)));
    }
    engine.register_fn("to_json", |context: NativeCallContext<'_>, map: Map| {
        let map = Dynamic::from_map(map);
        check(context.engine(), &map)?;
        serde_json::to_string(&map).map_err(|error| Error::from(error.to_string()))
    });
    register_replace(engine, max_string);
    for (name, backwards) in [("split", false), ("split_rev", true)] {
        let split = move |text: &str, by: &str, segments: i64| {
            let segments = usize::try_from(segments).unwrap_or(0).max(1);
            match (text, backwards) {
                ("", _) => collect(std::iter::once(""), max_elements),
                (_, false) => collect(text.splitn(segments, by), max_elements),
                (_, true) => collect(text.rsplitn(segments, by), max_elements),
            }
        };
        engine.register_fn(name, move |text: &str, by: &str| split(text, by, i64::MAX));
        engine.register_fn(name, move |text: &str, by: char| {
            split(text, by.encode_utf8(&mut [0; 4]), i64::MAX)
        });
        engine.register_fn(name, split);
        engine.register_fn(name, move |text: &str, by: char, segments: i64| {
            split(text, by.encode_utf8(&mut [0; 4]), segments)
        });
    }
    engine.register_fn("split", move |text: &str| match text {
        "" => collect(std::iter::once(""), max_elements),
        _ => collect(text.split_whitespace(), max_elements),
    });
    engine.register_fn("to_chars", move |text: &str| collect(text.chars(), max_elements));
}

fn register_replace(engine: &mut Engine, max_string: usize) {
    let replace = move |text: &mut ImmutableString, find: &str, by: &str| -> Result<(), Error> {
        let found = if text.is_empty() { 0 } else { text.matches(find).count() };
        let length =
            (text.len() - found * find.len()).saturating_add(found.saturating_mul(by.len()));
        if length > max_string {
            return Err(too_large("Length of string"));
        }
        if found > 0 {
            *text = text.replace(find, by).into();
        }
        Ok(())
    };
    // Not for constants.
    let changing = || FuncRegistration::new("replace").with_purity(false);
    changing().register_into_engine(engine, replace);
    changing().register_into_engine(
        engine,
        move |text: &mut ImmutableString, find: char, by: &str| {
            replace(text, find.encode_utf8(&mut [0; 4]), by)
        },
    );
}

/// An array of what comes, unless that is too much.
fn collect<T: Into<Dynamic>>(
    values: impl Iterator<Item = T>,
    limit: usize,
) -> Result<Array, Error> {
    let array: Array = values.take(limit.saturating_add(1)).map(Into::into).collect();
    if array.len() > limit { Err(too_large("Size of array/BLOB")) } else { Ok(array) }
}
