//! VLAN identifiers and sets of them, written as ranges.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A VLAN identifier that a network may use: 1 to 4094 (IEEE 802.1Q-2022, table 9-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct VlanId(u16);

/// Why a text or a number is not a VLAN identifier or a set of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VlanError {
    /// Outside 1–4094.
    #[error("VLAN ID {0} is outside 1-4094")]
    OutOfRange(u32),
    /// Neither a number nor `first-last`.
    #[error("{0:?} is not a VLAN ID or a range such as 10-20")]
    NotARange(String),
    /// `last` is below `first`.
    #[error("range {0}-{1} ends before it starts")]
    Backwards(u16, u16),
}

impl VlanId {
    /// The lowest identifier.
    pub const MIN: Self = Self(1);
    /// The highest identifier.
    pub const MAX: Self = Self(4094);

    /// Checks the range 1–4094.
    pub fn new(id: u16) -> Result<Self, VlanError> {
        if (1..=4094).contains(&id) { Ok(Self(id)) } else { Err(VlanError::OutOfRange(id.into())) }
    }

    /// The number.
    pub fn get(self) -> u16 {
        self.0
    }

    /// The number without its lowest four bits: the key of a block of [`FabricVlans`](crate::FabricVlans).
    pub fn block(self) -> u8 {
        // 4094 >> 4 is 255.
        u8::try_from(self.0 >> 4).unwrap_or(u8::MAX)
    }
}

impl TryFrom<u16> for VlanId {
    type Error = VlanError;
    fn try_from(id: u16) -> Result<Self, VlanError> {
        Self::new(id)
    }
}

impl From<VlanId> for u16 {
    fn from(id: VlanId) -> u16 {
        id.0
    }
}

impl fmt::Display for VlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for VlanId {
    type Err = VlanError;
    fn from_str(text: &str) -> Result<Self, VlanError> {
        let id: u32 = text.trim().parse().map_err(|_| VlanError::NotARange(text.to_owned()))?;
        u16::try_from(id).map_err(|_| VlanError::OutOfRange(id)).and_then(Self::new)
    }
}

impl JsonSchema for VlanId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "VlanId".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": 1, "maximum": 4094, "description": "A VLAN identifier, 1 to 4094." })
    }
}

const SET_WORDS: usize = 64;

/// Of a number of bits in a word.
fn count(bits: u32) -> u16 {
    u16::try_from(bits).unwrap_or(u16::MAX)
}

/// The word of a block, and the place of its lowest bit there.
fn place(block: u8) -> (usize, u32) {
    (usize::from(block / 4), u32::from(block % 4) * 16)
}

/// A set of VLAN identifiers. On the wire a text of ascending, disjoint, non-adjacent ranges: `10-20,30`; the
/// empty set is the empty text. In memory at most 512 bytes, none when empty.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct VlanSet(Option<Box<[u64; SET_WORDS]>>);

impl VlanSet {
    /// The empty set.
    pub const EMPTY: Self = Self(None);

    /// All of 1–4094.
    pub fn all() -> Self {
        (1..=4094).map(VlanId).collect()
    }

    /// Adds `id`; true when it was not there.
    pub fn insert(&mut self, id: VlanId) -> bool {
        let words = self.0.get_or_insert_with(|| Box::new([0; SET_WORDS]));
        let (word, bit) = (usize::from(id.0) / 64, 1 << (id.0 % 64));
        let new = words[word] & bit == 0;
        words[word] |= bit;
        new
    }

    /// Adds all from `first` to `last`, both inclusive; none when `last` is below `first`.
    pub fn insert_range(&mut self, first: VlanId, last: VlanId) {
        if last < first {
            return;
        }
        let words = self.0.get_or_insert_with(|| Box::new([0; SET_WORDS]));
        let (low, high) = (first.0 / 64, last.0 / 64);
        for at in low..=high {
            let from = if at == low { first.0 % 64 } else { 0 };
            let to = if at == high { last.0 % 64 } else { 63 };
            words[usize::from(at)] |= (u64::MAX << from) & (u64::MAX >> (63 - to));
        }
    }

    /// Takes `id` out; true when it was there.
    pub fn remove(&mut self, id: VlanId) -> bool {
        let Some(words) = &mut self.0 else { return false };
        let (word, bit) = (usize::from(id.0) / 64, 1 << (id.0 % 64));
        let was = words[word] & bit != 0;
        words[word] &= !bit;
        if words.iter().all(|w| *w == 0) {
            self.0 = None;
        }
        was
    }

    /// True when `id` is in the set.
    pub fn contains(&self, id: VlanId) -> bool {
        self.0.as_ref().is_some_and(|w| w[usize::from(id.0) / 64] & (1 << (id.0 % 64)) != 0)
    }

    /// True when nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// How many identifiers are in the set.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |w| w.iter().map(|w| w.count_ones() as usize).sum())
    }

    /// The identifiers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = VlanId> + '_ {
        let words = self.0.iter().flat_map(|words| (0u16..).zip(words.iter()));
        words.flat_map(|(at, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = u16::try_from(left.trailing_zeros()).ok().filter(|bit| *bit < 64)?;
                left &= left - 1;
                Some(VlanId(at * 64 + bit))
            })
        })
    }

    /// The ascending, disjoint, non-adjacent ranges `(first, last)`, both inclusive.
    pub fn ranges(&self) -> Vec<(VlanId, VlanId)> {
        let mut ranges: Vec<(VlanId, VlanId)> = Vec::new();
        let words = self.0.iter().flat_map(|words| (0u16..).zip(words.iter()));
        for (at, word) in words {
            let (mut left, mut bit) = (*word, 0);
            while left != 0 {
                let gap = left.trailing_zeros();
                let length = (left >> gap).trailing_ones();
                let first = at * 64 + bit + count(gap);
                let last = VlanId(first + count(length) - 1);
                match ranges.last_mut() {
                    Some((_, end)) if end.0 + 1 == first => *end = last,
                    _ => ranges.push((VlanId(first), last)),
                }
                left = left.checked_shr(gap + length).unwrap_or(0);
                bit += count(gap + length);
            }
        }
        ranges
    }

    /// True when each identifier of `self` is in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).is_empty()
    }

    /// What is in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.combine(other, |a, b| a | b)
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |a, b| a & b)
    }

    /// What is in `self` and not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.combine(other, |a, b| a & !b)
    }

    /// What is in one of both only.
    #[must_use]
    pub fn symmetric_difference(&self, other: &Self) -> Self {
        self.combine(other, |a, b| a ^ b)
    }

    /// The keys of the blocks with an identifier in the set, ascending; see [`VlanId::block`].
    pub(crate) fn blocks(&self) -> impl Iterator<Item = u8> {
        (0..=u8::MAX).filter(|block| self.bits(*block) != 0)
    }

    /// The identifiers of a block: bit 0 is the lowest.
    pub(crate) fn bits(&self, block: u8) -> u16 {
        let (word, shift) = place(block);
        let bits =
            |words: &[u64; SET_WORDS]| u16::try_from(words[word] >> shift & 0xffff).unwrap_or(u16::MAX);
        self.0.as_deref().map_or(0, bits)
    }

    /// Replaces the identifiers of a block. The numbers 0 and 4095 are left out.
    pub(crate) fn set_bits(&mut self, block: u8, bits: u16) {
        let bits = match block {
            0 => bits & !1,
            u8::MAX => bits & (u16::MAX >> 1),
            _ => bits,
        };
        if bits == 0 && self.0.is_none() {
            return;
        }
        let words = self.0.get_or_insert_with(|| Box::new([0; SET_WORDS]));
        let (word, shift) = place(block);
        words[word] = words[word] & !(u64::from(u16::MAX) << shift) | u64::from(bits) << shift;
        if words.iter().all(|word| *word == 0) {
            self.0 = None;
        }
    }

    fn combine(&self, other: &Self, op: impl Fn(u64, u64) -> u64) -> Self {
        let zero = [0; SET_WORDS];
        let (a, b) = (self.0.as_deref().unwrap_or(&zero), other.0.as_deref().unwrap_or(&zero));
        let words: [u64; SET_WORDS] = std::array::from_fn(|i| op(a[i], b[i]));
        Self(words.iter().any(|w| *w != 0).then(|| Box::new(words)))
    }
}

impl FromIterator<VlanId> for VlanSet {
    fn from_iter<I: IntoIterator<Item = VlanId>>(ids: I) -> Self {
        let mut set = Self::EMPTY;
        set.extend(ids);
        set
    }
}

/// Of ranges, both ends inclusive.
impl FromIterator<(VlanId, VlanId)> for VlanSet {
    fn from_iter<I: IntoIterator<Item = (VlanId, VlanId)>>(ranges: I) -> Self {
        let mut set = Self::EMPTY;
        for (first, last) in ranges {
            set.insert_range(first, last);
        }
        set
    }
}

impl Extend<VlanId> for VlanSet {
    fn extend<I: IntoIterator<Item = VlanId>>(&mut self, ids: I) {
        for id in ids {
            self.insert(id);
        }
    }
}

impl fmt::Display for VlanSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (first, last)) in self.ranges().into_iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            if first == last { write!(f, "{comma}{first}")? } else { write!(f, "{comma}{first}-{last}")? }
        }
        Ok(())
    }
}

impl fmt::Debug for VlanSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VlanSet({self})")
    }
}

impl FromStr for VlanSet {
    type Err = VlanError;
    fn from_str(text: &str) -> Result<Self, VlanError> {
        let mut set = Self::EMPTY;
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (first.parse::<VlanId>()?, last.parse::<VlanId>()?),
                None => (part.parse()?, part.parse()?),
            };
            if last < first {
                return Err(VlanError::Backwards(first.0, last.0));
            }
            set.insert_range(first, last);
        }
        Ok(set)
    }
}

impl Serialize for VlanSet {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for VlanSet {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for VlanSet {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "VlanSet".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^([0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*)?$",
            "maxLength": 20480,
            "description": "A set of VLAN identifiers as ascending ranges, such as 10-20,30; empty: none."
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(text: &str) -> VlanSet {
        text.parse().unwrap()
    }

    #[test]
    fn vlan_sets_parse_and_format() {
        for (text, shown) in
            [("", ""), ("5", "5"), ("20,10-19", "10-20"), (" 1 - 2 ,4", "1-2,4"), ("1-4094", "1-4094")]
        {
            assert_eq!(set(text).to_string(), shown);
        }
        for bad in ["0", "4095", "20-10", "a", "1-", "70000", "-"] {
            assert!(bad.parse::<VlanSet>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn vlan_sets_round_trip_through_text_and_ranges(ids in proptest::collection::btree_set(1u16..=4094, 0..200)) {
            let made: VlanSet = ids.iter().map(|id| VlanId(*id)).collect();
            prop_assert_eq!(&set(&made.to_string()), &made);
            prop_assert_eq!(&made.ranges().into_iter().collect::<VlanSet>(), &made);
            prop_assert_eq!(made.iter().map(VlanId::get).collect::<Vec<_>>(), ids.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn set_operations_match_btreeset(a in proptest::collection::btree_set(1u16..=4094, 0..50), b in proptest::collection::btree_set(1u16..=4094, 0..50)) {
            let of = |ids: &std::collections::BTreeSet<u16>| ids.iter().map(|id| VlanId(*id)).collect::<VlanSet>();
            prop_assert_eq!(of(&a).union(&of(&b)), of(&(&a | &b)));
            prop_assert_eq!(of(&a).intersection(&of(&b)), of(&(&a & &b)));
            prop_assert_eq!(of(&a).difference(&of(&b)), of(&(&a - &b)));
            prop_assert_eq!(of(&a).is_subset(&of(&b)), a.is_subset(&b));
        }
    }
}
