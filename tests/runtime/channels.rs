//! Bounded channels: nothing is lost without being told, order is kept, and each policy gives up what it says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use sensorium::pipeline::OnFull;
use sensorium::runtime::channel::{Receiver, Sent, bounded, gauged};
use sensorium::telemetry::live::Live;
use sensorium::telemetry::{DropReason, MonotonicClock};
use tokio::runtime::{Builder, Runtime};

const POLICIES: [OnFull; 3] = [OnFull::Block, OnFull::DropOldest, OnFull::DropNewest];

fn threads(count: usize) -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(count)
        .enable_time()
        .build()
        .unwrap()
}

fn drained<T>(mut receiver: Receiver<T>) -> Vec<T> {
    std::iter::from_fn(|| receiver.try_recv()).collect()
}

#[test]
fn a_full_channel_gives_up_what_its_policy_says() {
    threads(1).block_on(async {
        let (oldest, kept) = bounded(3, OnFull::DropOldest);
        let mut displaced = Vec::new();
        for i in 0..10 {
            match oldest.send(i).await {
                Sent::Queued => assert!(i < 3),
                Sent::Displaced(old) => displaced.push(old),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(displaced, [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(drained(kept), [7, 8, 9]);

        let (newest, kept) = bounded(3, OnFull::DropNewest);
        for i in 0..10 {
            let expected = if i < 3 { Sent::Queued } else { Sent::Refused(i) };
            assert_eq!(newest.send(i).await, expected);
        }
        assert_eq!(newest.len(), 3);
        assert_eq!(drained(kept), [0, 1, 2]);

        let (block, kept) = bounded(3, OnFull::Block);
        for i in 0..3 {
            assert_eq!(block.send(i).await, Sent::Queued);
        }
        let waits = tokio::time::timeout(Duration::from_millis(50), block.send(3)).await;
        assert!(waits.is_err(), "a full channel that blocks took {waits:?}");
        // The one that was given up while it waited is not in the channel.
        assert_eq!(drained(kept), [0, 1, 2]);
    });
}

#[test]
fn what_is_lost_names_its_reason() {
    assert_eq!(Sent::<u8>::Queued.lost(), None);
    assert_eq!(
        Sent::Displaced(1).lost(),
        Some((1, DropReason::ChannelFullOldest))
    );
    assert_eq!(Sent::Refused(2).lost(), Some((2, DropReason::ChannelFullNewest)));
    assert_eq!(Sent::Closed(3).lost(), Some((3, DropReason::ShuttingDown)));
}

#[test]
fn a_receiver_that_is_gone_is_told_to_every_sender() {
    threads(2).block_on(async {
        for on_full in POLICIES {
            let (sender, receiver) = bounded(2, on_full);
            assert_eq!(sender.send(0).await, Sent::Queued);
            drop(receiver);
            assert_eq!(sender.send(1).await, Sent::Closed(1), "{on_full}");
            assert_eq!(sender.try_send(2), Err(2), "{on_full}");
        }
    });
}

#[test]
fn a_sender_that_waits_is_woken_when_the_receiver_goes() {
    threads(2).block_on(async {
        let (waiting, receiver) = bounded(1, OnFull::Block);
        assert_eq!(waiting.send(0).await, Sent::Queued);
        let task = tokio::spawn(async move { waiting.send(1).await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(receiver);
        let woken = tokio::time::timeout(Duration::from_secs(10), task).await;
        assert_eq!(woken.unwrap().unwrap(), Sent::Closed(1));
    });
}

#[test]
fn channels_that_lead_to_one_reader_take_turns_and_end_with_the_last() {
    threads(2).block_on(async {
        let (a, from_a) = bounded(8, OnFull::Block);
        let (b, from_b) = bounded(1, OnFull::DropOldest);
        let mut reader = Receiver::merge([from_a, from_b]);
        for i in 0..4 {
            assert_eq!(a.send(i).await, Sent::Queued);
        }
        assert_eq!(b.send(10).await, Sent::Queued);
        assert_eq!(b.send(11).await, Sent::Displaced(10));
        let first = [reader.recv().await.unwrap(), reader.recv().await.unwrap()];
        assert!(first.contains(&0) && first.contains(&11), "{first:?}");
        drop(a);
        let mut rest = [reader.recv().await, reader.recv().await, reader.recv().await];
        rest.sort_unstable();
        assert_eq!(rest, [Some(1), Some(2), Some(3)]);
        // One channel is closed; the other one still wakes the reader.
        let late = tokio::spawn(async move { reader.recv().await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(b.send(12).await, Sent::Queued);
        assert_eq!(late.await.unwrap(), Some(12));
        assert_eq!(b.send(13).await, Sent::Closed(13));

        let mut reader = Receiver::merge([bounded::<u8>(1, OnFull::Block).1, bounded(1, OnFull::Block).1]);
        assert_eq!(reader.recv().await, None);
    });
}

#[test]
fn a_channel_ends_when_its_last_sender_is_gone_and_it_is_empty() {
    threads(2).block_on(async {
        for on_full in POLICIES {
            let (sender, mut receiver) = bounded(4, on_full);
            let clone = sender.clone();
            clone.send(1).await;
            sender.send(2).await;
            drop((sender, clone));
            assert_eq!(receiver.recv().await, Some(1), "{on_full}");
            assert_eq!(receiver.recv().await, Some(2), "{on_full}");
            assert_eq!(receiver.recv().await, None, "{on_full}");
        }
    });
}

#[test]
fn a_capacity_of_nothing_is_one() {
    threads(1).block_on(async {
        let (sender, mut receiver) = bounded(0, OnFull::Block);
        assert_eq!(sender.send(7).await, Sent::Queued);
        assert_eq!(receiver.recv().await, Some(7));
    });
}

/// What became of everything that some senders sent, each `(sender, number)`.
#[derive(Debug, Default)]
struct Account {
    received: Vec<(usize, u32)>,
    lost: Vec<(usize, u32)>,
    sent: usize,
}

/// Tasks on real threads, one for each policy, send `each` numbers through channels of their own, or all through
/// one if there is only one policy, to one reader.
fn traffic(capacity: usize, policies: &[OnFull], each: u32, slow: bool) -> Account {
    threads(4).block_on(async {
        let shared = policies.iter().all(|on_full| *on_full == policies[0]);
        let (senders, mut receiver) = if shared {
            let (sender, receiver) = bounded::<(usize, u32)>(capacity, policies[0]);
            (vec![sender; policies.len()], receiver)
        } else {
            let channels = policies.iter().map(|&on_full| bounded(capacity, on_full));
            let (senders, receivers): (Vec<_>, Vec<_>) = channels.unzip();
            (senders, Receiver::merge(receivers))
        };
        let receiving = tokio::spawn(async move {
            let mut received = Vec::new();
            while let Some(item) = receiver.recv().await {
                received.push(item);
                if slow {
                    tokio::task::yield_now().await;
                }
            }
            received
        });
        let sending: Vec<_> = senders
            .into_iter()
            .enumerate()
            .map(|(name, sender)| {
                tokio::spawn(async move {
                    let mut lost = Vec::new();
                    for number in 0..each {
                        lost.extend(sender.send((name, number)).await.lost().map(|(item, _)| item));
                        if number % 7 == 0 {
                            tokio::task::yield_now().await;
                        }
                    }
                    lost
                })
            })
            .collect();
        let mut account = Account {
            sent: policies.len() * each as usize,
            ..Account::default()
        };
        for task in sending {
            account.lost.extend(task.await.unwrap());
        }
        account.received = receiving.await.unwrap();
        account
    })
}

impl Account {
    fn check(&self, context: &str) {
        let mut seen: BTreeMap<(usize, u32), usize> = BTreeMap::new();
        for item in self.received.iter().chain(&self.lost) {
            *seen.entry(*item).or_default() += 1;
        }
        assert_eq!(
            seen.len(),
            self.sent,
            "{context}: every item once, received or lost"
        );
        assert!(
            seen.values().all(|&times| times == 1),
            "{context}: an item came twice"
        );
    }

    /// Of each sender, what was received, in the order of receiving.
    fn of(&self, sender: usize) -> Vec<u32> {
        let own = self.received.iter().filter(|(name, _)| *name == sender);
        own.map(|(_, number)| *number).collect()
    }
}

#[test]
fn concurrent_senders_lose_nothing_silently() {
    for on_full in POLICIES {
        for senders in [1, 3, 6] {
            let account = traffic(2, &vec![on_full; senders], 2_000, false);
            account.check(&format!("{on_full}, {senders} senders"));
            if on_full == OnFull::Block {
                assert_eq!(account.lost, []);
            }
            for sender in 0..senders {
                let own = account.of(sender);
                assert!(own.is_sorted(), "{on_full}: order of sender {sender}");
            }
        }
    }
}

#[test]
fn the_newest_item_arrives_when_the_oldest_is_given_up() {
    let account = traffic(1, &[OnFull::DropOldest], 5_000, true);
    account.check("drop_oldest");
    assert_eq!(account.of(0).last(), Some(&4_999));
}

/// Two items at once, so that the second displaces the first just as its reader wakes; then silence. Nothing that
/// is sent later may be needed to wake the reader for the second.
#[test]
fn an_item_that_displaced_another_wakes_the_reader() {
    threads(3).block_on(async {
        let (sender, mut receiver) = bounded(1, OnFull::DropOldest);
        let newest = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&newest);
        let receiving = tokio::spawn(async move {
            while let Some(number) = receiver.recv().await {
                seen.store(number, Ordering::Release);
            }
        });
        for round in 1..=20_000 {
            assert!(!matches!(sender.send(2 * round - 1).await, Sent::Closed(_)));
            let second = sender.send(2 * round).await;
            assert!(matches!(second, Sent::Queued | Sent::Displaced(_)), "{second:?}");
            let sent = Instant::now();
            while newest.load(Ordering::Acquire) != 2 * round {
                assert!(
                    sent.elapsed() < Duration::from_secs(20),
                    "the reader of round {round} sleeps"
                );
                tokio::task::yield_now().await;
            }
        }
        drop(sender);
        receiving.await.unwrap();
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_mixture_of_policies_accounts_for_every_item(
        capacity in 1_usize..9,
        policies in prop::collection::vec(prop::sample::select(POLICIES.to_vec()), 1..5),
        slow in any::<bool>(),
    ) {
        let account = traffic(capacity, &policies, 300, slow);
        account.check(&format!("{capacity} places, {policies:?}"));
    }

    #[test]
    fn without_a_receiver_each_policy_keeps_exactly_the_items_it_promises(
        capacity in 1_usize..20,
        sent in 1_u32..60,
    ) {
        let runtime = threads(1);
        let kept = |on_full| -> Vec<u32> {
            runtime.block_on(async {
                let (sender, receiver) = bounded(capacity, on_full);
                for number in 0..sent {
                    sender.send(number).await;
                }
                drained(receiver)
            })
        };
        let first: Vec<u32> = (0..sent.min(capacity as u32)).collect();
        let last: Vec<u32> = (sent.saturating_sub(capacity as u32)..sent).collect();
        prop_assert_eq!(kept(OnFull::DropNewest), first);
        prop_assert_eq!(kept(OnFull::DropOldest), last);
    }
}

#[test]
fn a_gauge_counts_what_waits_and_what_was_dropped_under_every_policy() {
    let clock = MonotonicClock::start();
    let live = Live::default();
    for (policy, len, sent, dropped) in [
        (OnFull::DropOldest, 2, 5, 3),
        (OnFull::DropNewest, 2, 2, 3),
        (OnFull::Block, 2, 2, 0),
    ] {
        let gauge = live.queue("camera", &format!("{policy:?}"), 2, clock);
        let (sender, mut receiver) = gauged(2, policy, gauge);
        threads(1).block_on(async {
            for i in 0..5 {
                if policy != OnFull::Block || sender.len() < 2 {
                    let _ = sender.send(i).await;
                }
            }
        });
        let of_policy = || live.queues().pop().unwrap();
        let reading = of_policy();
        assert_eq!(
            (reading.len, reading.sent, reading.dropped),
            (len, sent, dropped),
            "{policy:?}"
        );
        assert_eq!(reading.len, sender.len());
        assert!(
            reading.oldest_age_s > 0.0 && reading.taken_age_s == 0.0,
            "{reading:?}"
        );
        while receiver.try_recv().is_some() {}
        let reading = of_policy();
        assert_eq!((reading.len, reading.oldest_age_s), (0, 0.0), "{policy:?}");
        assert!(reading.taken_age_s > 0.0, "{reading:?}");
    }
    assert_eq!(live.queues().len(), 3);
    live.forget_queues_of("Block");
    assert_eq!(live.queues().len(), 2);
    live.forget_queues_of("camera");
    assert!(live.queues().is_empty());
}
