//! The bits of marks of packets and connections that ENO uses on nodes.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_with::{DeserializeFromStr, SerializeDisplay};
use thiserror::Error;

/// Who else uses marks, with the bits of its defaults.
const OTHERS: [(&str, u32); 3] =
    [("Calico", 0xffff_0000), ("Cilium", 0xffff_0f00), ("kube-proxy", 0x0000_c000)];

/// Adjacent bits of marks (`skb->mark` and `ct mark`) that are ENO's on nodes. A mark of ENO has a number above 0 in
/// them. As text `0x3f`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub struct MarkMask(u32);

/// Bits that can't be ENO's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MarkMaskError {
    /// It is no number.
    #[error("{0:?} is no hexadecimal number of 32 bits, such as 0x3f")]
    NotHexadecimal(String),
    /// The bits are not adjacent, or there are none.
    #[error("the bits of {0} are not adjacent; give such as 0x3f")]
    NotAdjacent(MarkMask),
    /// Another program uses the bits.
    #[error("{mask} shares bits with the marks of {other} ({bits:#x}); give other bits, such as 0x3f")]
    Overlap {
        /// The bits.
        mask: MarkMask,
        /// The other program.
        other: &'static str,
        /// Its bits.
        bits: u32,
    },
}

impl MarkMask {
    /// The bits.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// All marks, ascending.
    pub fn marks(self) -> impl Iterator<Item = u32> {
        let shift = self.0.trailing_zeros();
        (1..=self.0 >> shift).map(move |number| number << shift)
    }
}

impl Default for MarkMask {
    /// Bits that neither Calico, Cilium nor kube-proxy use by default, nor the plugin of AWS (0x80).
    fn default() -> Self {
        Self(0x3f)
    }
}

impl fmt::Display for MarkMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl FromStr for MarkMask {
    type Err = MarkMaskError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bits = text.strip_prefix("0x").and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let bits = bits.ok_or_else(|| MarkMaskError::NotHexadecimal(text.to_owned()))?;
        let mask = Self(bits);
        if bits == 0 || bits.leading_zeros() + bits.count_ones() + bits.trailing_zeros() != u32::BITS {
            return Err(MarkMaskError::NotAdjacent(mask));
        }
        match OTHERS.into_iter().find(|(_, taken)| taken & bits != 0) {
            Some((other, bits)) => Err(MarkMaskError::Overlap { mask, other, bits }),
            None => Ok(mask),
        }
    }
}

impl JsonSchema for MarkMask {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "MarkMask".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // From those with few bits on.
        let adjacent = (1..=u32::BITS).flat_map(|bits| {
            let lowest = u32::MAX >> (u32::BITS - bits);
            (0..=u32::BITS - bits).map(move |shift| Self(lowest << shift).to_string())
        });
        let valid: Vec<String> = adjacent.filter(|text| text.parse::<Self>().is_ok()).collect();
        json_schema!({"type": "string", "enum": valid})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_others_and_gaps_are_refused() {
        for (text, expected) in [
            ("0x3f", Ok(63)),
            ("0x80", Ok(1)),
            ("0x3000", Ok(3)),
            ("63", Err("is no hexadecimal number of 32 bits")),
            ("0x100000000", Err("is no hexadecimal number")),
            ("0x", Err("is no hexadecimal number")),
            ("0x0", Err("not adjacent")),
            ("0x5", Err("not adjacent")),
            ("0x100", Err("shares bits with the marks of Cilium (0xffff0f00)")),
            ("0x4000", Err("the marks of kube-proxy (0xc000)")),
            ("0x10000", Err("the marks of Calico (0xffff0000)")),
        ] {
            match (text.parse::<MarkMask>(), expected) {
                (Ok(mask), Ok(marks)) => {
                    assert_eq!(mask.to_string(), text);
                    assert_eq!(mask.marks().count(), marks);
                    assert!(mask.marks().all(|mark| mark != 0 && mark & !mask.bits() == 0));
                }
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
        assert_eq!(MarkMask::default().to_string().parse(), Ok(MarkMask::default()));
        let schema = schemars::schema_for!(MarkMask);
        let valid = schema.get("enum").and_then(serde_json::Value::as_array).unwrap();
        assert_eq!(valid.len(), 39);
        assert!(valid.contains(&"0x3f".into()) && !valid.contains(&"0x1ff".into()));
    }
}
