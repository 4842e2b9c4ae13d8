//! Sets of small numbers as text, such as VLANs in `external_ids`: `10-12,20`.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Formats a set as `10-12,20`; the empty set as the empty text.
pub fn write_ranges<N: Copy + Into<i64>>(members: &BTreeSet<N>) -> String {
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    for member in members {
        let member: i64 = (*member).into();
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == member => *last = member,
            _ => ranges.push((member, member)),
        }
    }
    let write = |(first, last)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
    ranges.into_iter().map(write).collect::<Vec<_>>().join(",")
}

/// Parses the output of [`write_ranges`]. Invalid parts, and numbers outside `valid`, are ignored.
pub fn read_ranges(text: &str, valid: RangeInclusive<u16>) -> impl Iterator<Item = u16> {
    let range = move |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse().ok().filter(|number| valid.contains(number));
        Some(number(first)?..=number(last)?)
    };
    text.split(',').filter_map(range).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_sets_format_as_ranges() {
        for (members, text) in [(&[][..], ""), (&[5], "5"), (&[1, 2, 3, 7, 4094, 4095], "1-3,7,4094-4095")] {
            let members: BTreeSet<u16> = members.iter().copied().collect();
            assert_eq!(write_ranges(&members), text);
            assert_eq!(read_ranges(text, 1..=4095).collect::<BTreeSet<_>>(), members);
        }
        let read: Vec<u16> = read_ranges("x,0,5-,9-8,70000,-1,3,4096", 1..=4095).collect();
        assert_eq!(read, [3]);
    }
}
