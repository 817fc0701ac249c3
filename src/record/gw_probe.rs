//! The record of `gw probe`.

use super::envelope::{Column, column};
use super::line::MAX_LINE;
use crate::decide::tally::{Rtt, Tally, pct};
use crate::types::gateway::Gateway;
use crate::types::status::Status;
use crate::types::time::millis;
use serde::Serialize;
use std::net::IpAddr;

/// What was asked through a gateway, and what became of it.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Probed {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The interface that it is behind
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dev: Option<String>,
    /// none, icmp, tcp, http or wan-ip
    method: &'static str,
    /// Beside the other gateways' weights; 0 is a spare
    weight: f64,
    /// Gateways of the lowest tier that has a living one are used
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<u32>,
    /// So many targets must be up
    need: usize,
    targets: Vec<Asked>,
    /// So many targets are not named, since the line would be too long to be read; the first to go are up
    #[serde(skip_serializing_if = "Option::is_none")]
    targets_left_out: Option<usize>,
    /// Of what was sent to all targets; absent where nothing left
    #[serde(skip_serializing_if = "Option::is_none")]
    loss_pct: Option<f64>,
    /// Of all answers
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt_avg_ms: Option<f64>,
    /// The address that most targets saw the question come from
    #[serde(skip_serializing_if = "Option::is_none")]
    wan_ip: Option<String>,
    /// The address that it should be
    #[serde(skip_serializing_if = "Option::is_none")]
    expect: Option<String>,
}

/// One target of a gateway.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Asked {
    target: String,
    /// up, down or unknown
    status: &'static str,
    sent: u32,
    received: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    loss_pct: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt_min_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt_avg_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt_max_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt_stddev_ms: Option<f64>,
    /// timeout, refused, reset, unreachable, bad-answer or local: why it is not up
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<&'static str>,
    /// Who said that it cannot be reached
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
}

impl Asked {
    pub(crate) fn new(
        target: &str,
        status: Status,
        tally: &Tally,
        failure: Option<&'static str>,
        from: Option<IpAddr>,
    ) -> Self {
        let rtt = tally.rtt();
        let ms = |of: fn(Rtt) -> std::time::Duration| rtt.map(|rtt| millis(of(rtt)));
        Asked {
            target: target.to_owned(),
            status: status.as_str(),
            sent: tally.sent,
            received: tally.received(),
            loss_pct: tally.loss_pct(),
            rtt_min_ms: ms(|rtt| rtt.min),
            rtt_avg_ms: ms(|rtt| rtt.avg),
            rtt_max_ms: ms(|rtt| rtt.max),
            rtt_stddev_ms: ms(|rtt| rtt.stddev),
            failure,
            from: from.map(|from| from.to_string()),
        }
    }
}

impl Probed {
    /// What is known of a gateway before it is asked.
    pub(crate) fn new(gateway: &Gateway, method: &'static str, need: usize) -> Self {
        Probed {
            name: gateway.name.clone(),
            dev: gateway.dev.clone(),
            method,
            weight: gateway.weight.0,
            tier: (gateway.tier != 1).then_some(gateway.tier),
            need,
            targets: Vec::new(),
            targets_left_out: None,
            loss_pct: None,
            rtt_avg_ms: None,
            wan_ip: None,
            expect: gateway.expect.map(|addr| addr.to_string()),
        }
    }

    /// Takes in the targets that a line has room for, in their order, and sums up all of them.
    pub(crate) fn sum_up<'a>(
        &mut self,
        targets: Vec<Asked>,
        tallies: impl Iterator<Item = &'a Tally>,
        wan_ip: Option<IpAddr>,
    ) {
        let (mut sent, mut lost, mut all) = (0, 0, Tally::default());
        for tally in tallies {
            sent += u64::from(tally.sent);
            lost += u64::from(tally.lost());
            all.rtts.extend(&tally.rtts);
        }
        self.loss_pct = (sent > 0).then(|| pct(lost, sent));
        self.rtt_avg_ms = all.rtt().map(|rtt| millis(rtt.avg));
        self.wan_ip = wan_ip.map(|addr| addr.to_string());
        let total = targets.len();
        self.targets = fitting(targets);
        self.targets_left_out = Some(total - self.targets.len()).filter(|left_out| *left_out > 0);
    }
}

/// Those that half a line has room for; what is not up has it first.
fn fitting(targets: Vec<Asked>) -> Vec<Asked> {
    let mut room = MAX_LINE / 2;
    let mut order: Vec<usize> = (0..targets.len()).collect();
    order.sort_by_key(|at| targets[*at].status == Status::Up.as_str());
    let mut fits = vec![false; targets.len()];
    for at in order {
        let length = serde_json::to_string(&targets[at]).map_or(usize::MAX, |text| text.len().saturating_add(1));
        let Some(left) = room.checked_sub(length) else { break };
        (room, fits[at]) = (left, true);
    }
    targets.into_iter().zip(fits).filter_map(|(target, fits)| fits.then_some(target)).collect()
}

pub(crate) const PROBE_COLUMNS: &[Column] = &[
    column("subject", "GATEWAY"),
    column("name", "NAME"),
    column("dev", "DEV"),
    column("status", "STATUS"),
    column("method", "METHOD"),
    column("targets/target", "TARGET"),
    column("targets/status", "IS"),
    column("targets/loss_pct", "LOSS %"),
    column("targets/rtt_avg_ms", "RTT MS"),
    column("targets/failure", "FAILURE"),
    column("targets/from", "FROM"),
    column("wan_ip", "WAN"),
];

pub(crate) const PROBE_SCHEMA: (&str, &str) = ("gw.probe", include_str!("schema/gw.probe.json"));

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::record::gw::read_object;
    use crate::record::line::Line;
    use crate::record::schema::check;
    use std::time::Duration;

    #[test]
    fn schema_of_gw_probe() {
        check::<Probed>("gw.probe", "Whether a gateway forwards, and what its targets say");
    }

    fn asked(number: u32, status: Status) -> Asked {
        let tally = Tally { sent: 3, rtts: vec![Duration::from_micros(1234); 3] };
        Asked::new(&format!("198.18.0.{number}"), status, &tally, None, None)
    }

    #[test]
    fn a_line_stays_short_enough_to_be_read_and_names_what_is_down() {
        let down = 900;
        let status = |number| if number == down { Status::Down } else { Status::Up };
        let targets: Vec<Asked> = (0..1000).map(|number| asked(number, status(number))).collect();
        let gateway = Gateway::at("192.0.2.1").unwrap();
        let mut probed = Probed::new(&gateway, "icmp", 1);
        probed.sum_up(targets, [Tally { sent: 4, rtts: vec![Duration::from_millis(2)] }].iter(), None);
        let text = serde_json::to_string(&probed).unwrap();
        assert!(text.len() < MAX_LINE && text.contains("198.18.0.900"), "{}", text.len());
        assert_eq!(probed.targets.len() + probed.targets_left_out.unwrap(), 1000);
        assert_eq!((probed.loss_pct, probed.rtt_avg_ms), (Some(75.0), Some(2.0)));
        let mut few = Probed::new(&gateway, "icmp", 1);
        few.sum_up(vec![asked(1, Status::Up)], std::iter::empty(), None);
        assert_eq!((few.targets_left_out, few.loss_pct), (None, None));
    }

    #[test]
    fn split_reads_the_gateway_back() {
        let mut gateway = Gateway::at("fe80::1%eth0").unwrap();
        gateway.tier = 2;
        gateway.weight = "0.25".parse().unwrap();
        let body = serde_json::to_string(&Probed::new(&gateway, "tcp", 1)).unwrap();
        let line = format!("{{\"subject\":\"fe80::1%eth0\",{}", &body[1..]);
        let read = read_object(&Line::parse(&line).unwrap()).unwrap();
        assert_eq!((read.subject(), read.tier, read.weight), (gateway.subject(), 2, gateway.weight));
    }
}
