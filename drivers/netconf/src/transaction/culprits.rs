//! Finding what a device refuses by halving, when its errors do not tell.

use std::future::Future;

/// The members of `all` that a device refuses, where a set is refused when it holds one of them. `refused` says
/// whether a set is; for one culprit among n it is asked about 2·log2 n times, and each by itself when it refuses all
/// of them. `None`: `budget` questions were not enough.
pub(super) async fn find<T, E, F>(
    all: &[T],
    budget: &mut usize,
    mut refused: impl FnMut(Vec<T>) -> F,
) -> Result<Option<Vec<T>>, E>
where
    T: Clone,
    F: Future<Output = Result<bool, E>>,
{
    let mut culprits = Vec::new();
    // Ranges that are known to hold a culprit.
    let mut suspect = vec![(0, all.len())];
    while let Some((start, end)) = suspect.pop() {
        if end - start <= 1 {
            culprits.extend(all[start..end].iter().cloned());
            continue;
        }
        let middle = start + (end - start) / 2;
        let mut left_refused = false;
        for (from, to) in [(start, middle), (middle, end)] {
            // When the left half is taken, the culprit is in the right one.
            let certain = from == middle && !left_refused;
            if !certain {
                let Some(left) = budget.checked_sub(1) else { return Ok(None) };
                *budget = left;
            }
            if certain || refused(all[from..to].to_vec()).await? {
                left_refused = true;
                suspect.push((from, to));
            }
        }
    }
    Ok(Some(culprits))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn search(size: u32, bad: &[u32], mut budget: usize) -> (Option<Vec<u32>>, usize) {
        let all: Vec<u32> = (0..size).collect();
        let before = budget;
        let found = find(&all, &mut budget, |part: Vec<u32>| {
            let refused = part.iter().any(|item| bad.contains(item));
            async move { Ok::<_, ()>(refused) }
        });
        let mut found = found.await.unwrap();
        if let Some(found) = &mut found {
            found.sort_unstable();
        }
        (found, before - budget)
    }

    #[tokio::test]
    async fn few_questions_find_few_culprits() {
        for bad in 0..1000 {
            let (found, asked) = search(1000, &[bad], 100).await;
            assert_eq!(found, Some(vec![bad]));
            assert!(asked <= 20, "{asked}");
        }
        let (found, asked) = search(1000, &[3, 400, 999], 100).await;
        assert_eq!(found, Some(vec![3, 400, 999]));
        assert!(asked <= 50, "{asked}");
        assert_eq!(search(1, &[0], 0).await.0, Some(vec![0]));
    }

    #[tokio::test]
    async fn a_device_that_refuses_everything_is_asked_about_few_and_left_soon_with_many() {
        let everything: Vec<u32> = (0..1000).collect();
        let (found, asked) = search(1000, &everything, 64).await;
        assert_eq!((found, asked), (None, 64));
        let (found, asked) = search(4, &[0, 1, 2, 3], 64).await;
        assert_eq!(found, Some(vec![0, 1, 2, 3]));
        assert!(asked <= 6, "{asked}");
    }
}
