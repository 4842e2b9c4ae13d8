//! The list of VLANs of a port, and records of it.

use std::fmt;

use eno_schemas::{VlanId, VlanSet};

/// The only list entry of a trunk that carries nothing. IEEE 802.1Q-2022 reserves it, so it is never a VLAN.
/// In Open vSwitch a trunk with an empty list carries every VLAN.
pub const CLOSED: u16 = 4095;

/// A set of the numbers that `trunks` may hold: 0 to 4095.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Trunks {
    vlans: VlanSet,
    has_zero: bool,
    has_closed: bool,
}

impl Trunks {
    /// The empty list.
    pub const EMPTY: Self = Self { vlans: VlanSet::EMPTY, has_zero: false, has_closed: false };

    /// The list of a trunk that carries nothing: only [`CLOSED`].
    pub const NOTHING: Self = Self { vlans: VlanSet::EMPTY, has_zero: false, has_closed: true };

    /// The VLANs among the numbers: all but 0 and [`CLOSED`].
    pub fn vlans(&self) -> &VlanSet {
        &self.vlans
    }

    /// Whether [`CLOSED`] is in the list.
    pub fn has_closed(&self) -> bool {
        self.has_closed
    }

    /// True when nothing is in the list.
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// True when [`CLOSED`] is the only entry, or there is none.
    pub fn is_closed_or_empty(&self) -> bool {
        self.vlans.is_empty() && !self.has_zero
    }

    /// Adds a number. Larger ones than [`CLOSED`] are left out.
    pub fn insert(&mut self, number: u16) {
        match (number, VlanId::new(number)) {
            (_, Ok(vlan)) => drop(self.vlans.insert(vlan)),
            (0, _) => self.has_zero = true,
            (CLOSED, _) => self.has_closed = true,
            _ => {}
        }
    }

    /// The numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        let zero = self.has_zero.then_some(0);
        let closed = self.has_closed.then_some(CLOSED);
        zero.into_iter().chain(self.vlans.iter().map(VlanId::get)).chain(closed)
    }

    /// What is in either list.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self {
            vlans: self.vlans.union(&other.vlans),
            has_zero: self.has_zero || other.has_zero,
            has_closed: self.has_closed || other.has_closed,
        }
    }

    /// What is in this list and not in the other one.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self {
            vlans: self.vlans.difference(&other.vlans),
            has_zero: self.has_zero && !other.has_zero,
            has_closed: self.has_closed && !other.has_closed,
        }
    }

    /// The lowest number that is also in the other list.
    pub fn first_in(&self, other: &Self) -> Option<u16> {
        let vlans = self.vlans.intersection(&other.vlans);
        let zero = (self.has_zero && other.has_zero).then_some(0);
        let closed = (self.has_closed && other.has_closed).then_some(CLOSED);
        zero.or_else(|| vlans.iter().next().map(VlanId::get)).or(closed)
    }

    /// The list with or without [`CLOSED`].
    #[must_use]
    pub fn with_closed(self, has_closed: bool) -> Self {
        Self { has_closed, ..self }
    }

    /// The list without these VLANs.
    #[must_use]
    pub fn without(&self, vlans: &VlanSet) -> Self {
        Self { vlans: self.vlans.difference(vlans), ..self.clone() }
    }

    /// Parses its text. Invalid parts, and numbers outside of 1 to [`CLOSED`], are left out.
    pub fn parse(text: &str) -> Self {
        let number = |text: &str| text.parse().ok().filter(|number| (1..=CLOSED).contains(number));
        let mut list = Self::EMPTY;
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Some(first), Some(last)) = (number(first), number(last)) else { continue };
            list.has_closed |= first <= last && last == CLOSED;
            // A range of `CLOSED` alone has no VLAN.
            if let Ok(first) = VlanId::new(first) {
                list.vlans.insert_range(first, VlanId::new(last).unwrap_or(VlanId::MAX));
            }
        }
        list
    }
}

impl From<VlanSet> for Trunks {
    fn from(vlans: VlanSet) -> Self {
        Self { vlans, ..Self::EMPTY }
    }
}

impl FromIterator<u16> for Trunks {
    fn from_iter<I: IntoIterator<Item = u16>>(numbers: I) -> Self {
        let mut list = Self::EMPTY;
        numbers.into_iter().for_each(|number| list.insert(number));
        list
    }
}

/// As ranges, such as `10-12,20`; the empty list as the empty text.
impl fmt::Display for Trunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let vlans = self.vlans.ranges().into_iter().map(|(first, last)| (first.get(), last.get()));
        let ends = [self.has_zero.then_some((0, 0)), self.has_closed.then_some((CLOSED, CLOSED))];
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for (first, last) in ends[0].into_iter().chain(vlans).chain(ends[1]) {
            match ranges.last_mut() {
                Some((_, end)) if *end + 1 == first => *end = last,
                _ => ranges.push((first, last)),
            }
        }
        for (at, (first, last)) in ranges.into_iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            if first == last { write!(f, "{comma}{first}")? } else { write!(f, "{comma}{first}-{last}")? }
        }
        Ok(())
    }
}

impl fmt::Debug for Trunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trunks({self})")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use eno_ovsdb::{read_ranges, write_ranges};
    use proptest::prelude::*;

    use super::*;

    fn any_numbers() -> impl Strategy<Value = BTreeSet<u16>> {
        let number = prop_oneof![4 => 0u16..8, 4 => 4088u16..=CLOSED, 1 => 0u16..=CLOSED];
        prop::collection::btree_set(number, 0..12)
    }

    proptest! {
        #[test]
        fn lists_are_sets_of_numbers(one in any_numbers(), other in any_numbers()) {
            let (list, others): (Trunks, Trunks) = (one.iter().copied().collect(), other.iter().copied().collect());
            let numbers = |list: &Trunks| list.iter().collect::<BTreeSet<u16>>();
            prop_assert_eq!(&numbers(&list), &one);
            prop_assert_eq!(numbers(&list.union(&others)), &one | &other);
            prop_assert_eq!(numbers(&list.difference(&others)), &one - &other);
            let without = one.iter().copied().filter(|number| VlanId::new(*number).map_or(true, |vlan| !others.vlans().contains(vlan)));
            prop_assert_eq!(numbers(&list.without(others.vlans())), without.collect());
            prop_assert_eq!(list.first_in(&others), one.intersection(&other).next().copied());
            prop_assert_eq!(list.is_empty(), one.is_empty());
            prop_assert_eq!(list.is_closed_or_empty(), one.iter().all(|number| *number == CLOSED));
            prop_assert_eq!(list.has_closed(), one.contains(&CLOSED));
            prop_assert_eq!(list.to_string(), write_ranges(&one));
        }

        /// Other clients and other versions write records with these functions.
        #[test]
        fn texts_are_read_as_the_database_reads_them(
            parts in prop::collection::vec(prop_oneof![
                "[0-9]{1,5}", "[0-9]{1,4}-[0-9]{1,4}", "4094-4095", "4095-4095", "40[0-9]{2}-4095", "[0-9x-]{0,4}",
            ], 0..5),
        ) {
            let text = parts.join(",");
            let read: BTreeSet<u16> = read_ranges(&text, 1..=CLOSED).collect();
            prop_assert_eq!(Trunks::parse(&text).iter().collect::<BTreeSet<u16>>(), read);
        }
    }
}
