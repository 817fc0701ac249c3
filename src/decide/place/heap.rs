//! A max-heap in an array whose items can be found by number, so that one that changes is moved alone.

/// A max-heap of ranks, each of one node; the greatest stands at the top.
#[derive(Debug)]
pub(super) struct Heap<R> {
    items: Vec<(R, usize)>,
    /// By node: where in `items` it stands.
    at: Vec<Option<u32>>,
}

impl<R: Ord> Heap<R> {
    /// The heap of these ranks, of nodes below `count`; built in O(n).
    pub(super) fn new(count: usize, ranks: impl Iterator<Item = (R, usize)>) -> Self {
        let items: Vec<(R, usize)> = ranks.collect();
        let mut heap = Heap { at: vec![None; count], items };
        for position in 0..heap.items.len() {
            heap.note(position);
        }
        for position in (0..heap.items.len() / 2).rev() {
            heap.sink(position);
        }
        heap
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Ranks and nodes in the order of the array: the top first, then level by level.
    pub(super) fn walk(&self) -> impl Iterator<Item = (&R, usize)> {
        self.items.iter().map(|(rank, node)| (rank, *node))
    }

    /// The greatest `count`, in their order.
    pub(super) fn best(&self, count: usize) -> Vec<usize> {
        let (mut open, mut best) = (Vec::new(), Vec::new());
        open.extend((!self.items.is_empty()).then_some(0));
        while best.len() < count {
            let Some(slot) = (0..open.len()).max_by_key(|slot| &self.items[open[*slot]]) else { break };
            let position: usize = open.swap_remove(slot);
            best.push(self.items[position].1);
            open.extend([2 * position + 1, 2 * position + 2].into_iter().filter(|child| *child < self.items.len()));
        }
        best
    }

    /// Gives a node another rank, or none; O(log n).
    pub(super) fn set(&mut self, node: usize, rank: Option<R>) {
        let position = self.at.get(node).copied().flatten().map(|position| position as usize);
        match (position, rank) {
            (Some(position), Some(rank)) => {
                self.items[position].0 = rank;
                self.settle(position);
            }
            (Some(position), None) => {
                self.items.swap_remove(position);
                self.at[node] = None;
                if position < self.items.len() {
                    self.note(position);
                    self.settle(position);
                }
            }
            (None, Some(rank)) => {
                self.items.push((rank, node));
                self.note(self.items.len() - 1);
                self.settle(self.items.len() - 1);
            }
            (None, None) => {}
        }
    }

    fn note(&mut self, position: usize) {
        let node = self.items[position].1;
        self.at[node] = u32::try_from(position).ok();
    }

    fn settle(&mut self, position: usize) {
        let position = self.rise(position);
        self.sink(position);
    }

    fn rise(&mut self, mut position: usize) -> usize {
        while position > 0 {
            let above = (position - 1) / 2;
            if self.items[position].0 <= self.items[above].0 {
                break;
            }
            self.swap(position, above);
            position = above;
        }
        position
    }

    fn sink(&mut self, mut position: usize) {
        loop {
            let children = [2 * position + 1, 2 * position + 2];
            let greater = children.into_iter().filter(|child| *child < self.items.len());
            let Some(child) = greater.max_by(|a, b| self.items[*a].0.cmp(&self.items[*b].0)) else { return };
            if self.items[child].0 <= self.items[position].0 {
                return;
            }
            self.swap(position, child);
            position = child;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.items.swap(a, b);
        self.note(a);
        self.note(b);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::cmp::Ordering;

    proptest! {
        #[test]
        fn the_greatest_is_on_top_whatever_changes(
            first in prop::collection::vec(any::<u8>(), 0..40),
            changes in prop::collection::vec((0usize..40, any::<Option<u8>>()), 0..60),
        ) {
            let mut ranks: Vec<Option<u8>> = first.iter().map(|rank| Some(*rank)).collect();
            ranks.resize(40, None);
            let mut heap = Heap::new(40, first.iter().enumerate().map(|(node, rank)| (*rank, node)));
            for (node, rank) in changes {
                heap.set(node, rank);
                ranks[node] = rank;
                let mut sorted: Vec<u8> = ranks.iter().flatten().copied().collect();
                sorted.sort_unstable_by(|a, b| b.cmp(a));
                let best: Vec<u8> = heap.best(40).into_iter().map(|node| ranks[node].unwrap()).collect();
                prop_assert_eq!(best, sorted);
                prop_assert_eq!(heap.walk().next().map(|(rank, _)| *rank), ranks.iter().flatten().max().copied());
                prop_assert!(heap.walk().all(|(rank, node)| ranks[node] == Some(*rank)));
            }
        }
    }

    thread_local!(static COMPARED: Cell<u64> = const { Cell::new(0) });

    #[derive(PartialEq, Eq)]
    struct Counted(u64);

    impl PartialOrd for Counted {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    impl Ord for Counted {
        fn cmp(&self, other: &Self) -> Ordering {
            COMPARED.set(COMPARED.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    #[test]
    fn a_change_costs_the_logarithm_of_the_nodes() {
        for (count, log) in [(1_000, 10), (10_000, 14), (100_000, 17)] {
            COMPARED.set(0);
            let mut heap = Heap::new(count, (0..count).map(|node| (Counted(u64::MAX - node as u64 % 97), node)));
            assert!(COMPARED.get() <= 3 * count as u64, "{count}: built with {}", COMPARED.get());
            for node in (0..count).step_by(7) {
                COMPARED.set(0);
                heap.set(node, Some(Counted(node as u64)));
                // On each level one child against the other, and the greater against what sinks.
                assert!(COMPARED.get() <= 2 * log + 3, "{count}: {}", COMPARED.get());
            }
            COMPARED.set(0);
            assert_eq!(heap.best(5).len(), 5);
            assert!(COMPARED.get() < 60);
        }
    }
}
