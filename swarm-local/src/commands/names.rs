//! Finds what a person may have meant by a name.

use super::super::web::{self, job_line};
use super::Failure;
use super::pool::Pool;

/// Maximum number of names that a sentence suggests.
const NEAR_MAX: usize = 3;

/// The least similarity of a suggested name, from 0 to 1.
const SIMILAR_ENOUGH: f64 = 0.8;

/// Returns the names of jobs that are similar to `name`, the most similar one first. O(jobs).
pub(super) async fn nearest(pool: &Pool, name: &str) -> Result<Vec<String>, Failure> {
    let mut near = Near::to(name);
    let each = |line: &[u8]| {
        if let Some((_, entry)) = job_line(line).transpose()? {
            near.add(entry.name);
        }
        Ok(())
    };
    pool.get(web::JOBS).await?.lines(each).await?;
    Ok(near.found.into_iter().map(|(_, name)| name).collect())
}

/// The names so far that are similar to a wrong one.
struct Near<'a> {
    wrong: &'a str,
    found: Vec<(f64, String)>,
}

impl<'a> Near<'a> {
    fn to(wrong: &'a str) -> Self {
        Self { wrong, found: Vec::new() }
    }

    fn add(&mut self, name: String) {
        let similarity = strsim::jaro_winkler(self.wrong, &name);
        if SIMILAR_ENOUGH <= similarity {
            self.found.push((similarity, name));
            self.found.sort_by(|(one, _), (other, _)| other.total_cmp(one));
            self.found.truncate(NEAR_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_names_come_first() {
        let near = |wrong: &str| {
            let mut near = Near::to(wrong);
            for name in ["yard", "camera-2", "camera-11", "camera-12", "camera-1"] {
                near.add(name.to_owned());
            }
            near.found.into_iter().map(|(_, name)| name).collect::<Vec<_>>()
        };
        assert_eq!(near("camera1")[0], "camera-1");
        assert_eq!(near("camera1").len(), 3);
        assert_eq!(near("weather"), [""; 0]);
    }
}
