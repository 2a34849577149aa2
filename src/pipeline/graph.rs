//! Order and circles of a graph of nodes.

/// The order of nodes `0..inputs.len()` in which each comes after all of its inputs, or one circle.
///
/// Nodes keep their given order where nothing forbids it. Inputs that are no node are left out by the caller.
///
/// # Errors
/// The nodes of a circle, each feeding the next, the last feeding the first.
pub(super) fn order(inputs: &[Vec<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    let mut order = Vec::with_capacity(inputs.len());
    let mut placed = vec![false; inputs.len()];
    while order.len() < inputs.len() {
        let ready = (0..inputs.len()).find(|&node| !placed[node] && inputs[node].iter().all(|&i| placed[i]));
        match ready {
            Some(node) => {
                placed[node] = true;
                order.push(node);
            }
            None => return Err(circle(inputs, &placed)),
        }
    }
    Ok(order)
}

/// Walks against the arrows from a node that could not be placed; every such node has an input that could not
/// be placed either, so the walk must come back to a node that it has seen.
fn circle(inputs: &[Vec<usize>], placed: &[bool]) -> Vec<usize> {
    let mut walk: Vec<usize> = Vec::new();
    let mut next = placed.iter().position(|&done| !done);
    while let Some(node) = next {
        if let Some(start) = walk.iter().position(|&seen| seen == node) {
            let mut circle = walk.split_off(start);
            circle.reverse();
            return circle;
        }
        walk.push(node);
        next = inputs[node].iter().copied().find(|&input| !placed[input]);
    }
    walk
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_comes_after_its_inputs_and_otherwise_stays_in_place() {
        assert_eq!(order(&[vec![2], vec![], vec![1]]), Ok(vec![1, 2, 0]));
        assert_eq!(order(&[vec![], vec![], vec![]]), Ok(vec![0, 1, 2]));
        assert_eq!(order(&[]), Ok(vec![]));
    }

    #[test]
    fn a_circle_is_named_in_the_direction_of_its_arrows() {
        // 0 feeds 1, 1 feeds 2, 2 feeds 1; 3 hangs behind the circle.
        assert_eq!(order(&[vec![], vec![0, 2], vec![1], vec![2]]), Err(vec![2, 1]));
        assert_eq!(order(&[vec![0]]), Err(vec![0]));
    }
}
