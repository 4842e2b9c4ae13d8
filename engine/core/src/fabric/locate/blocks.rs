//! The blocks of a graph. An edge is on a simple path between two vertices exactly if its block is on the way between
//! them in the tree of blocks. It is on all of them exactly if it is the only edge of that block.

use std::collections::BTreeSet;

/// The blocks of a graph with parallel edges, as a forest. All of it is found in linear time, and without recursion.
#[derive(Debug)]
pub struct Blocks {
    /// By block: its edges.
    pub edges: Vec<Vec<usize>>,
    /// By vertex: the block towards the root of its tree, and that block's vertex next to the root.
    up: Vec<Option<(usize, usize)>>,
    /// By vertex: how many blocks are between it and the root.
    level: Vec<usize>,
    /// By vertex: the root.
    root: Vec<usize>,
    /// By block: the root.
    root_of_block: Vec<usize>,
}

/// A vertex on the way from the root to where the search is.
struct Visited {
    vertex: usize,
    /// The edge by which the search came.
    by: Option<usize>,
    /// How many edges of the vertex it has followed.
    followed: usize,
}

/// What a search in depth knows.
struct Search {
    /// By vertex: the other vertex and the number of each edge.
    edges: Vec<Vec<(usize, usize)>>,
    /// By vertex: its number in the order of the search.
    found: Vec<Option<usize>>,
    /// By vertex: the lowest number that an edge from it or from what follows it leads to.
    low: Vec<usize>,
    /// The vertices, in the order of the search.
    order: Vec<usize>,
    /// Vertices and edges that are in no block yet.
    open: (Vec<usize>, Vec<usize>),
}

impl Blocks {
    /// Finds the blocks of the edges between `vertices` vertices.
    pub fn new(vertices: usize, edges: &[(usize, usize)]) -> Self {
        let mut search = Search {
            edges: vec![Vec::new(); vertices],
            found: vec![None; vertices],
            low: vec![0; vertices],
            order: Vec::with_capacity(vertices),
            open: (Vec::new(), Vec::new()),
        };
        for (edge, (a, b)) in edges.iter().enumerate().filter(|(_, (a, b))| a != b) {
            search.edges[*a].push((*b, edge));
            search.edges[*b].push((*a, edge));
        }
        let mut blocks = Self {
            edges: Vec::new(),
            up: vec![None; vertices],
            level: vec![0; vertices],
            root: (0..vertices).collect(),
            root_of_block: Vec::new(),
        };
        for root in 0..vertices {
            if search.found[root].is_none() {
                search.tree(root, &mut blocks);
            }
        }
        for vertex in search.order {
            if let Some((_, top)) = blocks.up[vertex] {
                blocks.level[vertex] = blocks.level[top] + 1;
                blocks.root[vertex] = blocks.root[top];
            }
        }
        blocks
    }

    /// The blocks between two vertices. `None`: no path joins them.
    pub fn between(&self, mut a: usize, mut b: usize) -> Option<BTreeSet<usize>> {
        let mut between = BTreeSet::new();
        while a != b {
            let lower = if self.level[a] < self.level[b] { &mut b } else { &mut a };
            let (block, top) = self.up[*lower]?;
            between.insert(block);
            *lower = top;
        }
        Some(between)
    }

    /// The blocks that paths from a vertex lead over.
    pub fn around(&self, vertex: usize) -> impl Iterator<Item = usize> {
        let root = self.root[vertex];
        (0..self.edges.len()).filter(move |block| self.root_of_block[*block] == root)
    }
}

impl Search {
    /// Searches what can be reached from a root.
    fn tree(&mut self, root: usize, blocks: &mut Blocks) {
        self.enter(root);
        let mut way = vec![Visited { vertex: root, by: None, followed: 0 }];
        while let Some(here) = way.last_mut() {
            let vertex = here.vertex;
            if let Some((to, edge)) = self.edges[vertex].get(here.followed).copied() {
                here.followed += 1;
                if here.by == Some(edge) {
                    continue;
                }
                match self.found[to] {
                    None => {
                        self.open.1.push(edge);
                        self.enter(to);
                        way.push(Visited { vertex: to, by: Some(edge), followed: 0 });
                    }
                    Some(number) if Some(number) < self.found[vertex] => {
                        self.open.1.push(edge);
                        self.low[vertex] = self.low[vertex].min(number);
                    }
                    Some(_) => {}
                }
                continue;
            }
            let by = here.by;
            way.pop();
            let (Some(before), Some(by)) = (way.last(), by) else { continue };
            self.low[before.vertex] = self.low[before.vertex].min(self.low[vertex]);
            if Some(self.low[vertex]) >= self.found[before.vertex] {
                self.close(before.vertex, vertex, by, blocks);
                blocks.root_of_block.push(root);
            }
        }
        self.open.0.clear();
    }

    fn enter(&mut self, vertex: usize) {
        self.found[vertex] = Some(self.order.len());
        self.low[vertex] = self.order.len();
        self.order.push(vertex);
        self.open.0.push(vertex);
    }

    /// Makes a block of what is open since the search went from `top` by an edge to `vertex`.
    fn close(&mut self, top: usize, vertex: usize, by: usize, blocks: &mut Blocks) {
        let (vertices, edges) = &mut self.open;
        let since = |list: &Vec<usize>, first| list.iter().rposition(|item| *item == first).unwrap_or(0);
        for inner in vertices.drain(since(vertices, vertex)..) {
            blocks.up[inner] = Some((blocks.edges.len(), top));
        }
        blocks.edges.push(edges.drain(since(edges, by)..).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_circles_and_single_edges() {
        // A triangle 0 1 2, an edge 2 3, two parallel edges 3 4, an edge 3 5, and 6 apart from all.
        let edges = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 3), (5, 3)];
        let blocks = Blocks::new(7, &edges);
        let between = |a, b| {
            let blocks_between = blocks.between(a, b)?.into_iter();
            Some(blocks_between.flat_map(|block| blocks.edges[block].clone()).collect::<BTreeSet<_>>())
        };
        for (a, b, expected) in [
            (0, 1, Some(vec![0, 1, 2])),
            (0, 2, Some(vec![0, 1, 2])),
            (2, 3, Some(vec![3])),
            (1, 5, Some(vec![0, 1, 2, 3, 6])),
            (4, 5, Some(vec![4, 5, 6])),
            (4, 4, Some(vec![])),
            (0, 6, None),
        ] {
            let expected = expected.map(|edges| edges.into_iter().collect());
            assert_eq!((between(a, b), between(b, a)), (expected.clone(), expected), "{a} to {b}");
        }
        assert_eq!((blocks.around(5).count(), blocks.around(6).count()), (4, 0));
    }

    #[test]
    fn long_chain_needs_no_stack() {
        let edges: Vec<_> = (1..200_000).map(|vertex| (vertex - 1, vertex)).collect();
        let blocks = Blocks::new(200_000, &edges);
        assert_eq!(blocks.between(0, 199_999).expect("joined").len(), 199_999);
    }
}
