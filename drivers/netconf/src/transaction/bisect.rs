//! Bisection: finds the refused parts of a change when the errors do not name them.

use std::future::Future;

/// Refused members after which, without an accepted one, only the last member is tried.
const MAX_REFUSED_ALONE: usize = 8;

/// Returns the refused members of `all`; `accepts` tries a set, and `all` as a whole is refused. Each part is tried
/// together with all members accepted so far. So the accepted members are accepted together, also where only a
/// limited number fits. One refused member of n takes up to 2·log2 n tries.
///
/// `None`: no member was accepted, and not all were tried. If the `budget` of tries is spent, all members without an
/// answer count as refused.
pub(super) async fn refused<T, E, F>(
    all: &[T],
    budget: &mut usize,
    accepts: impl FnMut(Vec<T>) -> F,
) -> Result<Option<Vec<T>>, E>
where
    T: Clone,
    F: Future<Output = Result<bool, E>>,
{
    let mut search = Search { all, accepted: vec![false; all.len()], budget, accepts };
    let mut tried_alone = 0;
    // Ranges without an answer, the next one last, each with whether it is known to be refused.
    let mut ranges = vec![(0, all.len(), true)];
    while let Some((start, end, known)) = ranges.pop() {
        if start == end || !known && search.tries(start, end).await? {
            continue;
        }
        if end - start == 1 {
            tried_alone += 1;
            if tried_alone == MAX_REFUSED_ALONE && search.nothing_accepted() {
                search.tries(all.len() - 1, all.len()).await?;
            }
        } else {
            let middle = start + (end - start) / 2;
            let left_accepted = search.tries(start, middle).await?;
            ranges.push((middle, end, left_accepted));
            if !left_accepted {
                ranges.push((start, middle, true));
            }
        }
        if *search.budget == 0 || tried_alone >= MAX_REFUSED_ALONE && search.nothing_accepted() {
            break;
        }
    }
    let Search { accepted, .. } = search;
    let refused = all.iter().zip(&accepted).filter(|(_, accepted)| !**accepted);
    let refused: Vec<T> = refused.map(|(member, _)| member.clone()).collect();
    Ok((accepted.contains(&true) || tried_alone == all.len()).then_some(refused))
}

struct Search<'a, T, A> {
    all: &'a [T],
    /// Whether each member is accepted.
    accepted: Vec<bool>,
    budget: &'a mut usize,
    accepts: A,
}

impl<T: Clone, A> Search<'_, T, A> {
    /// Tries these members together with all accepted ones; false when the budget is spent.
    async fn tries<E, F>(&mut self, start: usize, end: usize) -> Result<bool, E>
    where
        A: FnMut(Vec<T>) -> F,
        F: Future<Output = Result<bool, E>>,
    {
        let Some(left) = self.budget.checked_sub(1) else { return Ok(false) };
        *self.budget = left;
        let members = self.all.iter().enumerate();
        let tried = members.filter(|(at, _)| self.accepted[*at] || (start..end).contains(at));
        let accepted = (self.accepts)(tried.map(|(_, member)| member.clone()).collect()).await?;
        if accepted {
            self.accepted[start..end].fill(true);
        }
        Ok(accepted)
    }

    fn nothing_accepted(&self) -> bool {
        !self.accepted.contains(&true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn search(size: u32, budget: usize, accepts: impl Fn(&[u32]) -> bool) -> (Option<Vec<u32>>, usize) {
        let all: Vec<u32> = (0..size).collect();
        let mut left = budget;
        let found = refused(&all, &mut left, |part: Vec<u32>| {
            let accepted = accepts(&part);
            async move { Ok::<_, ()>(accepted) }
        });
        (found.await.unwrap(), budget - left)
    }

    fn without(bad: &[u32]) -> impl Fn(&[u32]) -> bool {
        |part| !part.iter().any(|member| bad.contains(member))
    }

    #[tokio::test]
    async fn bisection_finds_few_refused_members_in_few_tries() {
        for bad in 0..1000 {
            let (found, tries) = search(1000, 100, without(&[bad])).await;
            assert_eq!(found, Some(vec![bad]));
            assert!(tries <= 20, "{tries}");
        }
        let (found, tries) = search(1000, 100, without(&[3, 400, 999])).await;
        assert_eq!(found, Some(vec![3, 400, 999]));
        assert!(tries <= 50, "{tries}");
        assert_eq!(search(1, 0, without(&[0])).await.0, Some(vec![0]));
    }

    #[tokio::test]
    async fn bisection_accepts_as_many_as_fit() {
        for room in 1..50 {
            let (found, tries) = search(50, 200, |part| part.len() <= room).await;
            assert_eq!(found.map(|refused| 50 - refused.len()), Some(room));
            assert!(tries <= 100, "{tries}");
        }
    }

    #[tokio::test]
    async fn bisection_stops_early_when_everything_is_refused() {
        let (found, tries) = search(1000, 96, |_| false).await;
        assert_eq!(found, None);
        assert!(tries <= 30, "{tries}");
        assert_eq!(search(4, 96, |_| false).await.0, Some(vec![0, 1, 2, 3]));
        // Accepted members stay accepted when the budget is spent.
        let (found, tries) = search(1000, 4, |part| part.len() <= 300).await;
        assert_eq!((found.map(|refused| 1000 - refused.len()), tries), (Some(250), 4));
    }

    #[tokio::test]
    async fn refused_prefix_does_not_hide_accepted_members() {
        let bad: Vec<u32> = (0..10).collect();
        assert_eq!(search(50, 96, without(&bad)).await.0, Some(bad));
    }
}
