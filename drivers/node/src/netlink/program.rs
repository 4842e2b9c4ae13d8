//! Instructions of classic BPF (linux/filter.h), put together to programs that judge frames. Pure.
//!
//! A load behind the end of a frame ends a program with 0, which is `TC_ACT_OK`: the frame passes. A program that must
//! not let such a frame pass demands the length of it first ([`demand_length`]).

use std::net::IpAddr;

use ipnet::IpNet;

use super::Instruction;

/// `BPF_LD | BPF_ABS` of a word, half-word and byte; `BPF_LD | BPF_LEN`.
pub const LOAD_WORD: u16 = 0x20;
pub const LOAD_HALF: u16 = 0x28;
pub const LOAD_BYTE: u16 = 0x30;
pub const LOAD_LENGTH: u16 = 0x80;
/// `BPF_JMP | BPF_JEQ | BPF_K`, `BPF_JMP | BPF_JGE | BPF_K`, `BPF_JMP | BPF_JA`.
pub const JUMP_EQUAL: u16 = 0x15;
pub const JUMP_AT_LEAST: u16 = 0x35;
pub const JUMP: u16 = 0x05;
/// `BPF_ALU | BPF_AND | BPF_K`.
pub const AND: u16 = 0x54;
/// `BPF_RET | BPF_K`.
pub const RETURN: u16 = 0x06;
/// `TC_ACT_UNSPEC`: the packet goes on. `TC_ACT_SHOT`: it is dropped.
pub const PASS: u32 = u32::MAX;
pub const DROP: u32 = 2;
/// `SKF_AD_OFF + SKF_AD_VLAN_TAG` and `SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT`: the kernel holds the tag beside the frame.
pub const VLAN_TAG: u32 = 0xffff_f000 + 44;
pub const VLAN_TAG_PRESENT: u32 = 0xffff_f000 + 48;

/// Offsets in a frame without its tag.
pub const ETHER_TYPE: u32 = 12;
pub const PAYLOAD: u32 = 14;
pub const ARP_SENDER: u32 = PAYLOAD + 14;
pub const V4_SOURCE: u32 = PAYLOAD + 12;
pub const V6_NEXT_HEADER: u32 = PAYLOAD + 6;
pub const V6_SOURCE: u32 = PAYLOAD + 8;
pub const V6_PAYLOAD: u32 = PAYLOAD + 40;
/// Of a neighbour solicitation or advertisement, from its type on.
pub const ND_TARGET: u32 = 8;

/// Ethernet types.
pub const ARP: u32 = 0x0806;
pub const IPV4: u32 = 0x0800;
pub const IPV6: u32 = 0x86dd;
/// Values of the next header.
pub const HOP_BY_HOP: u32 = 0;
pub const ICMPV6: u32 = 58;
/// Types of ICMPv6 (RFC 4861).
pub const NEIGHBOUR_SOLICITATION: u32 = 135;
pub const NEIGHBOUR_ADVERTISEMENT: u32 = 136;

pub type Code = Vec<Instruction>;

pub fn instruction(code: u16, operand: u32) -> Instruction {
    Instruction { code, jump_true: 0, jump_false: 0, operand }
}

pub fn load(code: u16, offset: u32) -> Code {
    vec![instruction(code, offset)]
}

pub fn end(verdict: u32) -> Code {
    vec![instruction(RETURN, verdict)]
}

/// Runs `then` if the loaded value is `value`, and goes on after it otherwise.
pub fn if_equal(value: u32, then: Code) -> Code {
    let mut code = vec![
        Instruction { jump_true: 1, ..instruction(JUMP_EQUAL, value) },
        instruction(JUMP, length(&then)),
    ];
    code.extend(then);
    code
}

/// Drops the frame unless the loaded value is `value`.
pub fn demand(value: u32) -> Code {
    vec![Instruction { jump_true: 1, ..instruction(JUMP_EQUAL, value) }, instruction(RETURN, DROP)]
}

/// Drops the frame unless it has this length in bytes.
pub fn demand_length(bytes: u32) -> Code {
    vec![
        instruction(LOAD_LENGTH, 0),
        Instruction { jump_true: 1, ..instruction(JUMP_AT_LEAST, bytes) },
        instruction(RETURN, DROP),
    ]
}

/// Drops the frame unless it is ARP of IPv4 on Ethernet: its protocols, and the lengths of their addresses.
pub fn demand_arp() -> Code {
    [load(LOAD_WORD, PAYLOAD), demand(0x0001_0800), load(LOAD_HALF, PAYLOAD + 4), demand(0x0604)].concat()
}

/// Ends with the verdict if the loaded value is any of these.
pub fn end_if_any(values: &[u32], verdict: u32) -> Code {
    values
        .iter()
        .flat_map(|value| {
            [Instruction { jump_false: 1, ..instruction(JUMP_EQUAL, *value) }, instruction(RETURN, verdict)]
        })
        .collect()
}

/// Runs `then` if the address at an offset is in any of these networks, and goes on after it otherwise.
pub fn if_in(offset: u32, networks: &[IpNet], then: Code) -> Code {
    let tests: Vec<Code> = networks.iter().map(|network| test(offset, network)).collect();
    let mut left: u32 = tests.iter().map(|test| length(test) + 1).sum();
    let mut code = Code::new();
    for test in tests {
        left -= length(&test) + 1;
        code.extend(test);
        // Over the other tests and the jump behind them.
        code.push(instruction(JUMP, left + 1));
    }
    code.push(instruction(JUMP, length(&then)));
    code.extend(then);
    code
}

/// Skips the instruction behind it unless the address at an offset is in this network.
fn test(offset: u32, network: &IpNet) -> Code {
    let bytes = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let (values, masks) = (bytes(network.network()), bytes(network.netmask()));
    let words = |bytes: &[u8]| -> Vec<u32> {
        bytes
            .chunks_exact(4)
            .map(|word| word.iter().fold(0, |all, byte| all << 8 | u32::from(*byte)))
            .collect()
    };
    let mut code = Code::new();
    for ((value, mask), at) in words(&values).into_iter().zip(words(&masks)).zip((offset..).step_by(4)) {
        if mask == 0 {
            break;
        }
        code.push(instruction(LOAD_WORD, at));
        if mask != u32::MAX {
            code.push(instruction(AND, mask));
        }
        code.push(instruction(JUMP_EQUAL, value));
    }
    let end = code.len();
    for (at, found) in code.iter_mut().enumerate().filter(|(_, found)| found.code == JUMP_EQUAL) {
        // Four words take at most twelve instructions.
        found.jump_false = u8::try_from(end - at).unwrap_or(u8::MAX);
    }
    code
}

fn length(code: &[Instruction]) -> u32 {
    u32::try_from(code.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
pub mod interpreter {
    //! Programs are run as the kernel does.

    use super::*;

    /// Runs a program on a frame with a tag beside it. True: it passes.
    pub fn passes(program: &[Instruction], tag: Option<u16>, frame: &[u8]) -> bool {
        let (mut value, mut at) = (0_u32, 0_usize);
        loop {
            let Instruction { code, jump_true, jump_false, operand } = program[at];
            at += 1;
            let bytes = |length: usize| {
                let from = operand as usize;
                let bytes = frame.get(from..from + length)?;
                Some(bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
            };
            let mut jump = |is_true: bool| at += usize::from(if is_true { jump_true } else { jump_false });
            let loaded = match (code, operand) {
                (LOAD_BYTE, VLAN_TAG_PRESENT) => Some(tag.is_some().into()),
                (LOAD_HALF, VLAN_TAG) => Some(tag.unwrap_or_default().into()),
                (LOAD_LENGTH, _) => Some(u32::try_from(frame.len()).unwrap()),
                (LOAD_WORD, _) => bytes(4),
                (LOAD_HALF, _) => bytes(2),
                (LOAD_BYTE, _) => bytes(1),
                (AND, _) => Some(value & operand),
                (JUMP, _) => {
                    at += operand as usize;
                    continue;
                }
                (JUMP_EQUAL, _) => {
                    jump(value == operand);
                    continue;
                }
                (JUMP_AT_LEAST, _) => {
                    jump(value >= operand);
                    continue;
                }
                (RETURN, DROP) => return false,
                (RETURN, PASS) => return true,
                _ => panic!("{code:#x} {operand:#x}"),
            };
            // The kernel ends the program with 0, which is TC_ACT_OK.
            let Some(loaded) = loaded else { return true };
            value = loaded;
        }
    }

    #[test]
    fn addresses_are_compared_with_networks_of_any_length() {
        let address = |ip: &str| match ip.parse().unwrap() {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        for (networks, inside, outside) in [
            (&["10.1.2.3/32"][..], &["10.1.2.3"][..], &["10.1.2.2", "10.1.2.4"][..]),
            (&["10.0.0.0/7", "192.0.2.0/30"], &["11.255.0.1", "192.0.2.3"], &["12.0.0.0", "192.0.2.4"]),
            (&["0.0.0.0/0"], &["0.0.0.0", "255.255.255.255"], &[]),
            (&[], &[], &["10.0.0.1", "::"]),
            (
                &["2001:db8::1/128", "fd00:0:1:2::/63"],
                &["2001:db8::1", "fd00:0:1:3:ffff::"],
                &["2001:db8::2", "2001:db8:0:1::1", "fd00:0:1:4::", "fd01:0:1:2::"],
            ),
            (&["2000::/3", "fd00::/33"], &["3fff::1", "fd00:0:7fff::"], &["4000::1", "fd00:0:8000::"]),
        ] {
            let networks: Vec<IpNet> = networks.iter().map(|net| net.parse().unwrap()).collect();
            let program = [if_in(0, &networks, end(PASS)), end(DROP)].concat();
            for (ips, expected) in [(inside, true), (outside, false)] {
                for ip in ips {
                    assert_eq!(passes(&program, None, &address(ip)), expected, "{ip} in {networks:?}");
                }
            }
        }
    }
}
