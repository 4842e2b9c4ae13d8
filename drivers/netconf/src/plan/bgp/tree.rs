//! Configuration as a tree, in one form for all ways of writing it. Pure.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::memory::Counter;
use crate::text::Text;
use crate::xml::{Scope, Step, XmlError, walk};

/// Lists whose order counts.
const ORDERED: [&str; 2] = ["statement", "term"];

/// An element without its namespace. Two devices that mean the same have the same tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tree {
    name: String,
    text: String,
    children: Vec<Tree>,
}

impl Tree {
    /// The text of the first leaf at a path of names below it.
    pub(crate) fn leaf(&self, path: &str) -> Option<&str> {
        let found =
            path.split('/').try_fold(self, |at, name| at.children.iter().find(|one| one.name == name));
        found.map(|leaf| leaf.text.as_str())
    }

    /// The texts of a leaf, or of a leaf of each entry of a list, at a path of one or two names below it.
    pub(crate) fn leaves<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a str> {
        let (list, leaf) = path.split_once('/').unwrap_or((path, ""));
        let entries = self.children.iter().filter(move |one| one.name == list);
        entries.filter_map(move |one| if leaf.is_empty() { Some(one.text.as_str()) } else { one.leaf(leaf) })
    }

    /// The bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let own = size_of::<Self>() + self.name.len() + self.text.len();
        own + self.children.iter().map(Self::bytes).sum::<usize>()
    }

    /// What orders it among the children of an element.
    fn order(&self) -> (&str, Option<(&str, &[Self])>) {
        let is_ordered = ORDERED.contains(&self.name.as_str());
        (&self.name, (!is_ordered).then_some((&self.text, &self.children)))
    }
}

/// What entries of a kind may have. All else in them is of others, and is not compared. An element that may be empty is
/// among both.
#[derive(Debug, Default)]
struct Shape {
    leaves: BTreeSet<String>,
    inner: BTreeSet<String>,
}

/// How a dialect writes the entries of its kinds.
#[derive(Debug, Default)]
pub struct Shapes {
    kinds: BTreeMap<&'static str, Shape>,
    /// The last name of the leaf with a password. Devices show it encrypted or not at all, so it is never compared.
    secret: &'static str,
    rules: Rules,
}

/// How a dialect writes one thing in several ways.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Whether a leaf of a kind, by its path and value, means the same as none.
    pub(crate) is_default: fn(kind: &str, path: &str, text: &str) -> bool,
    /// The name and the value of the leaf for which an element stands, by its name and that of the element around it.
    pub(crate) alias: fn(around: &str, name: &str) -> Option<(&'static str, &'static str)>,
}

impl Default for Rules {
    fn default() -> Self {
        Self { is_default: |_, _, _| false, alias: |_, _| None }
    }
}

impl Shapes {
    /// The shapes of these samples, which have all that entries of a kind may have.
    pub(crate) fn of<'a>(
        samples: impl IntoIterator<Item = (&'static str, &'a str)>,
        secret: &'static str,
        rules: Rules,
    ) -> Self {
        let mut kinds: BTreeMap<&'static str, Shape> = BTreeMap::new();
        for (kind, sample) in samples {
            let shape = kinds.entry(kind).or_default();
            let mut entered = String::new();
            let walked = walk(
                &sample.into(),
                |_| Scope::Known,
                |step| {
                    match step {
                        Step::Enter(path) => path.clone_into(&mut entered),
                        Step::Leave(path, _) => {
                            let below = below(path, kind).to_owned();
                            let list = if path == entered { &mut shape.leaves } else { &mut shape.inner };
                            list.insert(below);
                        }
                    }
                    Ok(())
                },
            );
            // The samples are of this program, and a test reads them all.
            debug_assert!(walked.is_ok(), "{sample}");
        }
        Self { kinds, secret, rules }
    }

    /// The tree of an entry that is written as `xml`.
    pub(crate) fn tree(&self, kind: &'static str, xml: &str) -> Result<Tree, XmlError> {
        let (mut builder, mut built) = (Builder::default(), Tree::default());
        walk(
            &Text::from(xml),
            |_| Scope::Known,
            |step| {
                match step {
                    Step::Enter(path) if path == kind => builder = Builder::begin(kind, path),
                    Step::Enter(path) => builder.enter(path),
                    Step::Leave(path, text) => {
                        if let Some(entry) = builder.leave(self, path, text) {
                            built = entry.tree;
                        }
                    }
                }
                Ok(())
            },
        )?;
        Ok(built)
    }
}

/// The path below an entry.
fn below<'a>(path: &'a str, entry: &str) -> &'a str {
    path.get(entry.len()..).unwrap_or_default().trim_start_matches('/')
}

/// An entry as a device has it.
#[derive(Debug)]
pub(crate) struct Built {
    /// Its kind.
    pub(crate) kind: &'static str,
    /// What it has.
    pub(crate) tree: Tree,
    /// It has a password.
    pub(crate) has_password: bool,
}

/// Builds the tree of an entry while a document streams by.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    kind: &'static str,
    /// The path of the entry.
    base: String,
    open: Vec<Tree>,
    has_password: bool,
}

impl Builder {
    /// An entry of a kind begins at this path.
    pub(crate) fn begin(kind: &'static str, path: &str) -> Self {
        let entry = Tree { name: last(path).to_owned(), ..Tree::default() };
        Self { kind, base: path.to_owned(), open: vec![entry], has_password: false }
    }

    /// An entry is open.
    pub(crate) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// An element in it begins.
    pub(crate) fn enter(&mut self, path: &str) {
        self.open.push(Tree { name: last(path).to_owned(), ..Tree::default() });
    }

    /// An element ends. Returns the entry when it is that.
    pub(crate) fn leave(&mut self, shapes: &Shapes, path: &str, text: &str) -> Option<Built> {
        let mut ended = self.open.pop()?;
        ended.children.sort_by(|one, other| one.order().cmp(&other.order()));
        let Some(around) = self.open.last_mut() else {
            let (kind, has_password) = (self.kind, self.has_password);
            return Some(Built { kind, tree: ended, has_password });
        };
        if ended.name == shapes.secret {
            self.has_password |= !text.is_empty();
            return None;
        }
        let shape = shapes.kinds.get(self.kind)?;
        let mut below = Cow::Borrowed(below(path, &self.base));
        let mut text = normal(text);
        if let Some((name, value)) = (shapes.rules.alias)(&around.name, &ended.name) {
            let around = below.rsplit_once('/').map_or("", |(around, _)| around);
            (below, text) = (format!("{around}/{name}").into(), value.into());
            name.clone_into(&mut ended.name);
        }
        let is_leaf = ended.children.is_empty() && shape.leaves.contains(&*below);
        if is_leaf {
            ended.text = text.into_owned();
            if (shapes.rules.is_default)(self.kind, &below, &ended.text) {
                return None;
            }
        }
        if is_leaf || shape.inner.contains(&*below) && !ended.children.is_empty() {
            around.children.push(ended);
        }
        None
    }

    /// Counts what is kept of the entry.
    pub(crate) fn count(kept: &mut Counter, built: &Built) {
        kept.entry(built.tree.bytes());
    }
}

/// The last name of a path.
fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A value in one form: an identity without the prefix of its module, an address or a prefix as Rust writes it, a whole
/// number without `.0`.
fn normal(text: &str) -> Cow<'_, str> {
    let is_name = |part: &str| part.starts_with(|first: char| first.is_ascii_alphabetic());
    if let Some((prefix, identity)) = text.split_once(':')
        && is_name(prefix)
        && is_name(identity)
        && !identity.contains(':')
    {
        return Cow::Borrowed(identity);
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Cow::Owned(address.to_string());
    }
    if let Ok(net) = text.parse::<IpNet>() {
        return Cow::Owned(net.to_string());
    }
    match text.split_once('.') {
        Some((whole, "0" | "00")) if whole.bytes().all(|digit| digit.is_ascii_digit()) => {
            Cow::Borrowed(whole)
        }
        _ => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes() -> Shapes {
        let sample = "<g><name>x</name><config><a>1</a><flag/><secret>s</secret></config><p><k>1</k></p>\
                      <statement><name>1</name></statement></g>";
        let rules = Rules {
            is_default: |_, path, text| (path, text) == ("config/a", "7"),
            alias: |around, name| ((around, name) == ("p", "first")).then_some(("k", "1")),
        };
        Shapes::of([("g", sample)], "secret", rules)
    }

    #[test]
    fn trees_of_one_meaning_are_equal() {
        let tree = |xml: &str| shapes().tree("g", xml).unwrap();
        let one =
            tree("<g><name>x</name><config><a>1</a></config><p><k>1</k></p><p><k>2001:DB8::0</k></p></g>");
        for same in [
            "<g><p><k>2001:db8::</k></p><p><first/></p><config><a>1</a></config><name>x</name></g>",
            "<g><name>x</name><q/><config><a>1</a><other>2</other></config><p><k>1</k><l/></p><p><k>2001:db8::</k></p>\
             <r><k>1</k></r></g>",
        ] {
            assert_eq!(tree(same), one, "{same}");
        }
        for other in [
            "<g><name>x</name><config><a>2</a></config></g>",
            "<g><name>x</name><config><a>1</a><flag/></config><p><k>1</k></p><p><k>2001:db8::</k></p></g>",
            "<g><name>x</name><config><a>1</a></config><p><k>1</k></p></g>",
        ] {
            assert_ne!(tree(other), one, "{other}");
        }
        assert_eq!(tree("<g><config><a>7</a></config></g>"), tree("<g/>"));
        assert_eq!(tree("<g><config><secret>a</secret></config></g>"), tree("<g/>"));
        assert_eq!(tree("<g><name>x:Ab</name></g>").leaf("name"), Some("Ab"));
        assert_eq!(one.leaf("config/a"), Some("1"));
        assert_eq!(one.leaves("p/k").collect::<Vec<_>>(), ["1", "2001:db8::"]);
        assert_eq!(tree("<g><config><a>1.0</a></config></g>").leaf("config/a"), Some("1"));
    }

    #[test]
    fn statements_have_an_order() {
        let tree = |xml: &str| shapes().tree("g", xml).unwrap();
        let statement = |name: u8| format!("<statement><name>{name}</name></statement>");
        let both = |first, second| tree(&format!("<g>{}{}</g>", statement(first), statement(second)));
        assert_ne!(both(1, 2), both(2, 1));
        assert_eq!(both(1, 2), both(1, 2));
    }
}
