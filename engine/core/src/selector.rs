//! Label selectors, as Kubernetes' `metav1.LabelSelector` defines them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The labels of an object.
pub type Labels = BTreeMap<String, String>;

/// A selector: all of its requirements hold. The empty one selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Selector(pub Vec<Requirement>);

/// One requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// The relation.
    pub operator: Operator,
    /// For `In` and `NotIn`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// The relation of a label to the values of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Operator {
    /// Its value is one of them.
    In,
    /// It is absent or its value is none of them.
    NotIn,
    /// It is there.
    Exists,
    /// It is absent.
    DoesNotExist,
}

impl Selector {
    /// True when `labels` meet every requirement.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| {
            let value = labels.get(&requirement.key);
            let listed = value.is_some_and(|value| requirement.values.contains(value));
            match requirement.operator {
                Operator::In => listed,
                Operator::NotIn => !listed,
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selector_matches_each_operator() {
        let labels = Labels::from([("pool".to_owned(), "a".to_owned())]);
        let check = |key: &str, operator, values: &[&str]| {
            let values = values.iter().map(ToString::to_string).collect();
            Selector(vec![Requirement { key: key.into(), operator, values }]).matches(&labels)
        };
        assert!(Selector::default().matches(&labels));
        assert!(check("pool", Operator::In, &["b", "a"]) && !check("pool", Operator::In, &["b"]));
        assert!(!check("rack", Operator::In, &["a"]));
        assert!(check("pool", Operator::NotIn, &["b"]) && !check("pool", Operator::NotIn, &["a"]));
        assert!(check("rack", Operator::NotIn, &["a"]));
        assert!(check("pool", Operator::Exists, &[]) && !check("rack", Operator::Exists, &[]));
        assert!(check("rack", Operator::DoesNotExist, &[]) && !check("pool", Operator::DoesNotExist, &[]));
    }
}
