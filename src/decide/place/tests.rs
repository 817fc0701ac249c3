#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;

/// A node as a test describes it.
#[derive(Clone, Debug)]
struct Given {
    name: String,
    status: Status,
    gone: bool,
    standby: Option<String>,
    total: [Option<u64>; 3],
    used: Amounts,
    services: Option<u64>,
    facts: Vec<Option<Fact>>,
}

fn up(name: &str) -> Given {
    Given {
        name: name.to_owned(),
        status: Status::Up,
        gone: false,
        standby: None,
        total: [Some(8000), Some(100), Some(100)],
        used: [0; 3],
        services: None,
        facts: Vec::new(),
    }
}

fn ups(names: &[&str]) -> Vec<Given> {
    names.iter().map(|name| up(name)).collect()
}

fn settings(policy: Policy) -> Settings {
    Settings {
        policy,
        threshold: 0.5,
        sticky: false,
        fail_back: None,
        max_moves: None,
        fencing: true,
        explain: false,
        need: Need::default(),
        requires: Vec::new(),
        keys: Vec::new(),
    }
}

fn services(words: &[&str]) -> Vec<Service> {
    let read = |word: &&str| {
        let mut words = word.split(' ');
        let mut service = Service::called(words.next().unwrap()).unwrap();
        words.for_each(|word| service.take(word).unwrap());
        service
    };
    words.iter().map(read).collect()
}

fn at(seconds: u64) -> Tick {
    Tick(Duration::from_secs(seconds))
}

fn view(nodes: &[Given], second: u64) -> View<'_> {
    let mut nodes: Vec<Node<'_>> = nodes
        .iter()
        .map(|given| Node {
            name: &given.name,
            status: given.status,
            gone: given.gone,
            standby: given.standby.as_deref(),
            weight: None,
            priority: None,
            total: given.total,
            used: given.used,
            services: given.services,
            told: Tick::default(),
            facts: &given.facts,
        })
        .collect();
    nodes.sort_by_key(|node| node.name);
    View { nodes, wait: None, standby: BTreeMap::new(), now: at(second), time: WallTime { unix_us: 0 } }
}

/// What a run says of each service: its node, `-` for none, with marks for what is held or waits for proof.
fn told(conclusion: &Conclusion) -> Vec<String> {
    let one = |outcome: &Outcome| {
        let node = outcome.node.as_deref().unwrap_or("-");
        let held = if outcome.held { " held" } else { "" };
        let from = outcome.moved_from.as_ref().map(|from| format!(" from {from}")).unwrap_or_default();
        let off = if outcome.needs_fence.is_empty() {
            String::new()
        } else {
            format!(" off {}", outcome.needs_fence.join(","))
        };
        format!("{node}{held}{from}{off}")
    };
    conclusion.outcomes.iter().map(one).collect()
}

fn run(nodes: &[Given], wanted: &[Service], settings: &Settings, memory: &mut Memory, second: u64) -> Conclusion {
    place(wanted, settings, &view(nodes, second), memory, &mut Draw::new(7))
}

fn placed(memory: &mut Memory, service: &str, node: &str) {
    let placed = Placed { node: node.to_owned(), at: at(0), time: WallTime { unix_us: 0 }, unproven: Vec::new() };
    memory.placed.insert(service.to_owned(), placed);
}

const FIVE: [&str; 5] = ["a", "b", "c", "d", "e"];

/// known-faults 14.
#[test]
fn five_services_on_three_equal_nodes_are_two_two_and_one() {
    let five = services(&FIVE);
    for policy in [Policy::LeastServices, Policy::RoundRobin] {
        let mut first = None;
        for nodes in [["n1", "n2", "n3"], ["n3", "n1", "n2"], ["n2", "n3", "n1"]] {
            let mut memory = Memory::default();
            let conclusion = run(&ups(&nodes), &five, &settings(policy), &mut memory, 1);
            assert_eq!(told(&conclusion), ["n1", "n2", "n3", "n1", "n2"], "{policy:?}");
            assert_eq!(*first.get_or_insert(conclusion.clone()), conclusion, "whatever the order");
        }
    }
    // Chance spreads them too, since a node that got one is worth less.
    let mut memory = Memory::default();
    let asks = Settings { need: Need([4000, 50, 50]), ..settings(Policy::Weighted) };
    let conclusion = run(&ups(&["n1", "n2", "n3"]), &five, &asks, &mut memory, 1);
    let mut counts = BTreeMap::new();
    for node in told(&conclusion) {
        *counts.entry(node).or_insert(0) += 1;
    }
    assert!(counts.len() == 3 && counts.values().all(|count| *count <= 2), "{counts:?}");
}

/// known-faults 14.
#[test]
fn where_nothing_fits_each_node_says_why() {
    let mut nodes = ups(&["n1", "n2", "n3", "n4", "n5"]);
    nodes[0].status = Status::Down;
    nodes[1].standby = Some("a new kernel".to_owned());
    nodes[2].used[0] = 7000;
    nodes[3].facts = vec![Some(Fact::read("b"))];
    nodes[3].total[0] = None;
    nodes[2].facts = vec![Some(Fact::read("a"))];
    for policy in [Policy::LeastServices, Policy::RoundRobin, Policy::Weighted] {
        let asks = Settings { keys: vec!["zone".to_owned()], ..settings(policy) };
        let wanted = services(&["web cpu=2 require=zone=a"]);
        let conclusion = run(&nodes, &wanted, &asks, &mut Memory::default(), 1);
        let outcome = &conclusion.outcomes[0];
        assert_eq!((outcome.node.as_deref(), outcome.end), (None, End::NoFit));
        let failed: Vec<String> =
            outcome.candidates.iter().map(|one| format!("{} {}", one.node, one.failed.join("; "))).collect();
        assert_eq!(
            failed,
            [
                "n1 status=up: it is down; zone=a: the node does not tell it",
                "n2 standby: a new kernel; zone=a: the node does not tell it",
                "n3 cpu: 7 in use and 2 needed, of 8",
                "n4 zone=a: it is b; cpu: the node does not tell its total",
                "n5 zone=a: the node does not tell it",
            ]
        );
        let rejected: Vec<(&str, u64)> = outcome.rejected.iter().map(|(why, count)| (why.as_str(), *count)).collect();
        assert_eq!(rejected, [("cpu", 1), ("standby", 1), ("status=up", 1), ("zone=a", 2)]);
        // One of which nothing is known may be up.
        let mut unsure = nodes.clone();
        unsure[0] = Given { status: Status::Unknown, facts: vec![Some(Fact::read("a"))], ..up("n1") };
        let conclusion = run(&unsure, &wanted, &asks, &mut Memory::default(), 1);
        assert_eq!(conclusion.outcomes[0].end, End::Waiting);
    }
    let nobody = run(&[], &services(&["web"]), &settings(Policy::RoundRobin), &mut Memory::default(), 1);
    assert_eq!(nobody.outcomes[0].end, End::Waiting);
}

/// known-faults 14.
#[test]
fn a_removed_node_costs_no_turn_and_gives_nobody_two() {
    let turns = settings(Policy::RoundRobin);
    for (removed, then) in [("n1", ["n3", "n2", "n3"]), ("n2", ["n3", "n1", "n3"]), ("n3", ["n1", "n2", "n1"])] {
        let mut memory = Memory::default();
        let nodes = ups(&["n1", "n2", "n3"]);
        let first = run(&nodes, &services(&FIVE), &turns, &mut memory, 1);
        assert_eq!(told(&first).last().map(String::as_str), Some("n2"));
        let fewer: Vec<Given> = nodes.into_iter().filter(|node| node.name != removed).collect();
        let second = run(&fewer, &services(&["f", "g", "h"]), &turns, &mut memory, 2);
        assert_eq!(told(&second), then, "without {removed}");
    }
}

#[test]
fn resources_that_were_given_out_in_a_run_count_in_it() {
    let mut nodes = ups(&["n1", "n2"]);
    nodes[1].used = [7000, 0, 0];
    for policy in [Policy::LeastServices, Policy::RoundRobin, Policy::Weighted] {
        let asks = Settings { need: Need([3000, 0, 0]), ..settings(policy) };
        let conclusion = run(&nodes, &services(&["a", "b", "c"]), &asks, &mut Memory::default(), 1);
        assert_eq!(told(&conclusion), ["n1", "n1", "-"], "{policy:?}");
    }
    // What a node runs that it does not tell yet counts too, and what it tells does not count twice.
    let mut memory = Memory::default();
    let asks = Settings { need: Need([3000, 0, 0]), sticky: true, ..settings(Policy::LeastServices) };
    run(&ups(&["n1"]), &services(&["a", "b"]), &asks, &mut memory, 5);
    assert_eq!(told(&run(&ups(&["n1"]), &services(&["a", "b", "c"]), &asks, &mut memory, 6)), ["n1", "n1", "-"]);
    let nodes = ups(&["n1"]);
    let mut later = view(&nodes, 9);
    later.nodes[0].told = at(8);
    let conclusion = place(&services(&["a", "b", "c"]), &asks, &later, &mut memory, &mut Draw::new(1));
    assert_eq!(told(&conclusion), ["n1", "n1", "n1"]);
}

#[test]
fn a_number_that_placing_changes_is_compared_as_it_changes() {
    let asks = Settings { requires: vec!["services<2".parse().unwrap()], ..settings(Policy::RoundRobin) };
    let conclusion = run(&ups(&["n1", "n2"]), &services(&FIVE), &asks, &mut Memory::default(), 1);
    assert_eq!(told(&conclusion), ["n1", "n2", "n1", "n2", "-"]);
    // And drives nothing away afterwards.
    let mut memory = Memory::default();
    placed(&mut memory, "a", "n1");
    placed(&mut memory, "b", "n1");
    assert_eq!(told(&run(&ups(&["n1", "n2"]), &services(&["a", "b"]), &asks, &mut memory, 1)), ["n1", "n1"]);
}

#[test]
fn off_a_dead_node_with_its_proof_and_not_off_an_unknown_one() {
    let asks = settings(Policy::LeastServices);
    let wanted = services(&["a"]);
    let mut memory = Memory::default();
    placed(&mut memory, "a", "n1");
    let mut nodes = ups(&["n1", "n2", "n3"]);
    nodes[0].status = Status::Unknown;
    assert_eq!(told(&run(&nodes, &wanted, &asks, &mut memory, 1)), ["n1 held"]);
    // One that is not even named is as unknown.
    assert_eq!(told(&run(&nodes[1..], &wanted, &asks, &mut memory, 1)), ["n1 held"]);
    nodes[0].status = Status::Down;
    let moved = run(&nodes, &wanted, &asks, &mut memory, 2);
    assert_eq!((told(&moved), moved.outcomes[0].end), (vec!["n2 from n1 off n1".to_owned()], End::Waiting));
    // Said again, for as long as it is so.
    assert_eq!(told(&run(&nodes, &wanted, &asks, &mut memory, 3)), ["n2 from n1 off n1"]);
    // The one that was to take it dies: it may have seen the proof.
    nodes[1].status = Status::Down;
    assert_eq!(told(&run(&nodes, &wanted, &asks, &mut memory, 4)), ["n3 from n1 off n1,n2"]);
    // Back, and never proven off: it has it still.
    let mut back = (nodes.clone(), memory.clone());
    back.0[0].status = Status::Up;
    assert_eq!(told(&run(&back.0, &wanted, &asks, &mut back.1, 5)), ["n1"]);
    nodes[0].gone = true;
    assert_eq!(told(&run(&nodes, &wanted, &asks, &mut memory, 5)), ["n3 from n2 off n2"]);
    nodes[1].gone = true;
    let done = run(&nodes, &wanted, &asks, &mut memory, 6);
    assert_eq!((told(&done), done.outcomes[0].end), (vec!["n3 from n2".to_owned()], End::Placed));
    assert_eq!(told(&run(&nodes, &wanted, &asks, &mut memory, 7)), ["n3"]);
    // Without fencing, and off a node that said good-bye, it moves at once.
    for (fencing, gone) in [(false, false), (true, true)] {
        let mut memory = Memory::default();
        placed(&mut memory, "a", "n1");
        let mut nodes = ups(&["n1", "n2"]);
        (nodes[0].status, nodes[0].gone) = (Status::Down, gone);
        let asks = Settings { fencing, ..asks.clone() };
        assert_eq!(told(&run(&nodes, &wanted, &asks, &mut memory, 1)), ["n2 from n1"]);
    }
}

#[test]
fn standby_moves_away_without_proof_and_stays_where_nothing_else_fits() {
    let asks = settings(Policy::RoundRobin);
    let wanted = services(&["a"]);
    let mut nodes = ups(&["n1", "n2"]);
    nodes[0].standby = Some("disk".to_owned());
    let mut memory = Memory::default();
    placed(&mut memory, "a", "n1");
    let mut alone = memory.clone();
    assert_eq!(told(&run(&nodes, &wanted, &asks, &mut memory, 1)), ["n2 from n1"]);
    let stays = run(&nodes[..1], &wanted, &asks, &mut alone, 1);
    assert_eq!((told(&stays), stays.outcomes[0].end), (vec!["n1 held".to_owned()], End::NoFit));
    // A service that is to be left alone is.
    let mut memory = Memory::default();
    placed(&mut memory, "a", "n1");
    let mut left = view(&nodes, 1);
    left.standby.insert("a".to_owned(), "by hand".to_owned());
    let conclusion = place(&wanted, &asks, &left, &mut memory, &mut Draw::new(1));
    assert_eq!((told(&conclusion), conclusion.outcomes[0].end), (vec!["n1".to_owned()], End::Placed));
}

#[test]
fn not_quorate_nothing_is_placed_or_moved() {
    let mut nodes = ups(&["n1", "n2"]);
    nodes[0].status = Status::Down;
    let mut memory = Memory::default();
    placed(&mut memory, "a", "n1");
    let mut waits = view(&nodes, 1);
    waits.wait = Some("this side is not quorate".to_owned());
    let before = memory.clone();
    let conclusion =
        place(&services(&["a", "b"]), &settings(Policy::LeastServices), &waits, &mut memory, &mut Draw::new(1));
    assert_eq!(told(&conclusion), ["n1 held", "-"]);
    assert!(conclusion.outcomes.iter().all(|outcome| outcome.end == End::Waiting));
    assert_eq!(memory, before);
}

#[test]
fn home_first_and_back_home_once_it_has_been_up_for_long_enough() {
    let asks = Settings { fail_back: Some(Duration::from_secs(60)), sticky: true, ..settings(Policy::LeastServices) };
    let wanted = services(&["a home=n2", "b home=n2", "c"]);
    let mut nodes = ups(&["n1", "n2"]);
    let mut memory = Memory::default();
    assert_eq!(told(&run(&nodes, &wanted, &asks, &mut memory, 0)), ["n2", "n2", "n1"]);
    (nodes[1].status, nodes[1].gone) = (Status::Down, true);
    assert_eq!(told(&run(&nodes, &wanted, &asks, &mut memory, 10)), ["n1 from n2", "n1 from n2", "n1"]);
    (nodes[1].status, nodes[1].gone) = (Status::Up, false);
    let waits = run(&nodes, &wanted, &asks, &mut memory, 20);
    assert_eq!((told(&waits), waits.wake), (vec!["n1".to_owned(); 3], Some(at(80))));
    // It flaps: the time begins anew.
    nodes[1].status = Status::Unknown;
    run(&nodes, &wanted, &asks, &mut memory, 50);
    nodes[1].status = Status::Up;
    run(&nodes, &wanted, &asks, &mut memory, 51);
    assert_eq!(told(&run(&nodes, &wanted, &asks, &mut memory, 80)), ["n1", "n1", "n1"]);
    let one = Settings { max_moves: Some(1), ..asks.clone() };
    assert_eq!(told(&run(&nodes, &wanted, &one, &mut memory, 111)), ["n2 from n1", "n1", "n1"]);
    assert_eq!(told(&run(&nodes, &wanted, &one, &mut memory, 112)), ["n2", "n2 from n1", "n1"]);
    // A home that has no room is none.
    placed(&mut memory, "a", "n1");
    nodes[1].standby = Some("x".to_owned());
    assert_eq!(told(&run(&nodes, &wanted[..1], &asks, &mut memory, 200)), ["n1"]);
}

#[test]
fn without_sticky_services_spread_again_and_come_to_rest() {
    let five = services(&FIVE);
    let mut memory = Memory::default();
    for name in FIVE {
        placed(&mut memory, name, "n1");
    }
    let nodes = ups(&["n1", "n2", "n3"]);
    let sticky = Settings { sticky: true, ..settings(Policy::LeastServices) };
    assert_eq!(told(&run(&nodes, &five, &sticky, &mut memory.clone(), 1)), ["n1"; 5]);
    let conclusion = run(&nodes, &five, &settings(Policy::LeastServices), &mut memory, 1);
    assert_eq!(told(&conclusion), ["n2 from n1", "n3 from n1", "n2 from n1", "n1", "n1"]);
    let again = run(&nodes, &five, &settings(Policy::LeastServices), &mut memory, 2);
    assert_eq!(told(&again), ["n2", "n3", "n2", "n1", "n1"]);
    // By weight too: to a node that is better by more than a tenth.
    let mut memory = Memory::default();
    placed(&mut memory, "a", "n1");
    let mut nodes = ups(&["n1", "n2"]);
    nodes[0].used = [4000, 50, 50];
    let asks = Settings { need: Need([4000, 50, 50]), ..settings(Policy::Weighted) };
    assert_eq!(told(&run(&nodes, &five[..1], &asks, &mut memory.clone(), 1)), ["n1"]);
    nodes[0].used = [7000, 50, 60];
    assert_eq!(told(&run(&nodes, &five[..1], &asks, &mut memory, 1)), ["n2 from n1"]);
}

/// The share of each node in a long run, from the weights in the order of the heap's array: in a walk the
/// k-th is taken where none before it was; after three walks that took none it is the first.
fn expected(weights: &[f64], inverted: bool) -> Vec<f64> {
    let chance = |weight: f64| if inverted { 1.0 - weight } else { weight };
    let mut nobody = 1.0;
    let one_walk: Vec<f64> = weights
        .iter()
        .map(|weight| {
            let taken = nobody * chance(*weight);
            nobody *= 1.0 - chance(*weight);
            taken
        })
        .collect();
    let walks = 1.0 + nobody + nobody * nobody;
    let mut shares: Vec<f64> = one_walk.iter().map(|share| share * walks).collect();
    shares[0] += nobody.powi(3);
    shares
}

/// How often each node is drawn of `count` times, in the order of `weights`, which is that of a heap.
fn drawn(weights: &[f64], threshold: f64, count: u32) -> Vec<f64> {
    let ranks = weights.iter().enumerate().map(|(node, weight)| (Rank { weight: *weight, services: 0, node }, node));
    let heap = Heap::new(weights.len(), ranks);
    let order: Vec<usize> = heap.walk().map(|(_, node)| node).collect();
    assert_eq!(order, (0..weights.len()).collect::<Vec<_>>(), "the test's weights are a heap already");
    let mut draw = Draw::new(42);
    let mut got = vec![0u32; weights.len()];
    for _ in 0..count {
        got[draw_from(&heap, threshold, &mut draw).unwrap().0] += 1;
    }
    got.into_iter().map(|got| f64::from(got) / f64::from(count)).collect()
}

#[test]
fn long_run_shares_match_the_weights() {
    const COUNT: u32 = 200_000;
    for weights in [
        &[0.9, 0.6, 0.7, 0.2, 0.5][..],
        &[0.5, 0.5, 0.5],
        &[0.55, 0.01, 0.01],
        &[0.4, 0.3, 0.35, 0.1],
        &[0.2, 0.1],
        &[1.0, 0.9],
        &[0.0],
    ] {
        let inverted = weights[0] < 0.5;
        let shares = expected(weights, inverted);
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        for (share, got) in shares.iter().zip(drawn(weights, 0.5, COUNT)) {
            // Five standard deviations.
            let most = 5.0 * (share * (1.0 - share) / f64::from(COUNT)).sqrt() + 1e-9;
            assert!((share - got).abs() <= most, "{weights:?}: {got} for {share}");
        }
    }
}

/// With all weights low nobody takes, three walks end without, and the top gets what is left: the fullest
/// cluster would put the most on one node. Inverted the first two nodes share nearly all of it, and with
/// many nodes the work of a draw is short.
#[test]
fn the_inverted_draw_below_the_threshold_matters() {
    let weights = [0.10, 0.09, 0.08, 0.05];
    let (with, without) = (drawn(&weights, 0.5, 100_000), drawn(&weights, 0.0, 100_000));
    for (weights_of, inverted, got) in [(&weights, true, &with), (&weights, false, &without)] {
        for (share, got) in expected(weights_of, inverted).iter().zip(got) {
            assert!((share - got).abs() < 0.01, "{got} for {share}");
        }
    }
    // 0.90, 0.09, 0.01 against 0.52, 0.19, 0.17, 0.12.
    assert!(with[0] > 0.89 && without[0] < 0.60, "{with:?} {without:?}");
    // The draws that each needs.
    let draws = |threshold: f64| {
        let many: Vec<f64> = (0..1000).map(|_| 0.01).collect();
        let ranks = many.iter().enumerate().map(|(node, weight)| (Rank { weight: *weight, services: 0, node }, node));
        let heap = Heap::new(many.len(), ranks);
        let (mut draw, mut fresh) = (Draw::new(1), Draw::new(1));
        (0..1000).for_each(|_| {
            draw_from(&heap, threshold, &mut draw).unwrap();
        });
        let end = draw.next();
        (0..10_000_000).find(|_| fresh.next() == end).unwrap()
    };
    let (with, without) = (draws(0.5), draws(0.0));
    assert!(with < 1_200 && without > 50_000, "{with} {without}");
}

#[test]
fn a_simulation_fills_nodes_and_changes_nothing() {
    let nodes = ups(&["n1", "n2", "n3"]);
    let memory = Memory::default();
    let wanted = services(&["a cpu=2"]);
    for policy in [Policy::LeastServices, Policy::RoundRobin] {
        let (got, rejected) = simulate(0, &wanted, 10, &settings(policy), &view(&nodes, 1), &memory, &mut Draw::new(1));
        assert_eq!(got.into_values().collect::<Vec<_>>(), [4, 3, 3], "{policy:?}");
        assert_eq!(rejected.into_iter().collect::<Vec<_>>(), [("cpu".to_owned(), 1)]);
    }
    let weighted = settings(Policy::Weighted);
    let (got, rejected) = simulate(0, &wanted, 100, &weighted, &view(&nodes, 1), &memory, &mut Draw::new(1));
    assert_eq!(got.into_values().collect::<Vec<_>>(), [4, 4, 4]);
    assert_eq!(rejected.into_iter().collect::<Vec<_>>(), [("cpu".to_owned(), 3)]);
}

fn a_node() -> impl Strategy<Value = Given> {
    let status = prop_oneof![4 => Just(Status::Up), 1 => Just(Status::Down), 1 => Just(Status::Unknown)];
    let zone = prop_oneof![3 => Just(Some("a")), 1 => Just(Some("b")), 1 => Just(None)];
    (
        1u8..9,
        status,
        any::<bool>(),
        prop::option::weighted(0.1, Just("x".to_owned())),
        0u64..9000,
        0u64..120,
        zone,
        prop::option::of(0u64..5),
    )
        .prop_map(|(name, status, gone, standby, cpu, memory, zone, services)| Given {
            status,
            gone: gone && status == Status::Down,
            standby,
            used: [cpu, memory, 0],
            services,
            facts: vec![zone.map(Fact::read)],
            ..up(&format!("n{name}"))
        })
}

fn some_nodes() -> impl Strategy<Value = Vec<Given>> {
    prop::collection::vec(a_node(), 0..8).prop_map(|mut nodes| {
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        nodes.dedup_by(|a, b| a.name == b.name);
        nodes
    })
}

fn a_policy() -> impl Strategy<Value = Policy> {
    prop_oneof![Just(Policy::LeastServices), Just(Policy::RoundRobin), Just(Policy::Weighted)]
}

fn some_services() -> impl Strategy<Value = Vec<Service>> {
    let one = (0u64..4, prop::option::weighted(0.3, 1u8..9), any::<bool>());
    prop::collection::vec(one, 1..10).prop_map(|all| {
        let one = |(idx, (cpu, home, zone)): (usize, (u64, Option<u8>, bool))| {
            let mut service = Service::called(&format!("s{idx}")).unwrap();
            service.take(&format!("cpu={cpu}")).unwrap();
            service.home = home.map(|home| format!("n{home}"));
            if zone {
                service.take("require=zone=a").unwrap();
            }
            service
        };
        all.into_iter().enumerate().map(one).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// What was chosen in two conclusions, the second after something happened, is what may be chosen.
    #[test]
    fn nothing_goes_where_a_predicate_fails(
        first in some_nodes(), second in some_nodes(), wanted in some_services(), policy in a_policy(),
        seed in any::<u64>(), sticky in any::<bool>(), fencing in any::<bool>(), max_moves in prop::option::of(0usize..4),
        hold in prop::option::of(0u64..2),
    ) {
        let asks = Settings {
            sticky, fencing, max_moves, keys: vec!["zone".to_owned()],
            fail_back: hold.map(Duration::from_secs), ..settings(policy)
        };
        let mut memory = Memory::default();
        for (nodes, second) in [(&first, 1), (&second, 3)] {
            let before = memory.clone();
            let seen = view(nodes, second);
            let conclusion = place(&wanted, &asks, &seen, &mut memory, &mut Draw::new(seed));
            // The same again from the same, however often.
            let mut twin = before.clone();
            prop_assert_eq!(&place(&wanted, &asks, &seen, &mut twin, &mut Draw::new(seed)), &conclusion);
            prop_assert_eq!(&twin, &memory);
            prop_assert_eq!(conclusion.outcomes.len(), wanted.len());
            let mut moves = 0;
            let mut taken: BTreeMap<&str, u64> = BTreeMap::new();
            for (service, outcome) in wanted.iter().zip(&conclusion.outcomes) {
                let was = before.placed.get(&service.name);
                let old = was.map(|was| &was.node);
                prop_assert!(!(outcome.node.is_none() && was.is_some()), "a service is never given up");
                if outcome.node.as_ref() == old || outcome.node.is_none() {
                    continue;
                }
                let node = outcome.node.as_ref().unwrap();
                // Back where it still runs is no move.
                if was.is_some_and(|was| was.unproven.first() == Some(node)) {
                    continue;
                }
                moves += usize::from(was.is_some());
                let given = nodes.iter().find(|given| given.name == *node).unwrap();
                prop_assert_eq!(given.status, Status::Up);
                prop_assert_eq!(&given.standby, &None);
                prop_assert!(service.requires.is_empty() || given.facts[0] == Some(Fact::read("a")));
                *taken.entry(&given.name).or_insert(given.used[0]) += service.need.unwrap().0[0];
                if let Some(was) = was {
                    let left = nodes.iter().find(|given| given.name == was.node);
                    // Nothing leaves a node of which nothing is known, nor a dead one without its proof.
                    prop_assert!(left.is_some_and(|left| left.status != Status::Unknown));
                    let left = left.unwrap();
                    prop_assert_eq!(outcome.needs_fence.contains(&was.node), fencing && left.status == Status::Down && !left.gone);
                    if sticky && hold.is_none() {
                        let fits = service.requires.is_empty() || left.facts[0] == Some(Fact::read("a"));
                        prop_assert!(left.status == Status::Down || left.standby.is_some() || !fits);
                    }
                }
            }
            prop_assert!(moves <= max_moves.unwrap_or(usize::MAX));
            // Nothing left a node in the first conclusion: what was given out there fits.
            if before.placed.is_empty() {
                for given in nodes.iter().filter(|given| taken.get(given.name.as_str()).is_some_and(|sum| *sum > given.used[0])) {
                    prop_assert!(taken[given.name.as_str()] <= 8000, "{:?}", given);
                }
            }
        }
    }

    /// Where nothing changes, nothing moves: whatever improves comes to rest.
    #[test]
    fn conclusions_come_to_rest(nodes in some_nodes(), wanted in some_services(), policy in a_policy(), seed in any::<u64>()) {
        let asks = Settings { keys: vec!["zone".to_owned()], fencing: false, ..settings(policy) };
        let mut memory = Memory::default();
        let mut draw = Draw::new(seed);
        for _ in 0..20 {
            place(&wanted, &asks, &view(&nodes, 1), &mut memory, &mut draw);
        }
        let before: Vec<Option<String>> = wanted.iter().map(|one| memory.placed.get(&one.name).map(|placed| placed.node.clone())).collect();
        let conclusion = place(&wanted, &asks, &view(&nodes, 1), &mut memory, &mut draw);
        let after: Vec<Option<String>> = conclusion.outcomes.into_iter().map(|outcome| outcome.node).collect();
        prop_assert_eq!(before, after);
    }
}
