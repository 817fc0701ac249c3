# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_vip_global_optspecs
    string join \n h/help V/version
end

function __fish_vip_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_vip_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_vip_using_subcommand
    set -l cmd (__fish_vip_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c vip -n "__fish_vip_needs_command" -s h -l help -d 'Print help'
complete -c vip -n "__fish_vip_needs_command" -s V -l version -d 'Print version'
complete -c vip -n "__fish_vip_needs_command" -f -a "show" -d 'Show addresses, as the kernel has them'
complete -c vip -n "__fish_vip_needs_command" -f -a "add" -d 'Add addresses; one that is there already is left as it is'
complete -c vip -n "__fish_vip_needs_command" -f -a "del" -d 'Take addresses away; one that is not there is no failure'
complete -c vip -n "__fish_vip_needs_command" -f -a "arp" -d 'Announce addresses: gratuitous ARP, unsolicited neighbour advertisements'
complete -c vip -n "__fish_vip_needs_command" -f -a "who" -d 'Ask the wire who has an address, and list every MAC that claims it'
complete -c vip -n "__fish_vip_needs_command" -f -a "dad" -d 'Look for duplicates of an address without claiming it'
complete -c vip -n "__fish_vip_needs_command" -f -a "peers" -d 'List the TCP peers that are connected to an address'
complete -c vip -n "__fish_vip_needs_command" -f -a "tickle" -d 'After a take-over, make each TCP peer notice at once'
complete -c vip -n "__fish_vip_needs_command" -f -a "elect" -d 'Conclude from node records who should serve each address, and whether this node may do it now'
complete -c vip -n "__fish_vip_needs_command" -f -a "apply" -d 'Make the kernel agree with the elections on standard input: carry and announce what is mine'
complete -c vip -n "__fish_vip_needs_command" -f -a "watch" -d 'Report changes of links and addresses as they happen'
complete -c vip -n "__fish_vip_using_subcommand show" -l dev -d 'Only on this interface' -r
complete -c vip -n "__fish_vip_using_subcommand show" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c vip -n "__fish_vip_using_subcommand show" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c vip -n "__fish_vip_using_subcommand show" -l mine -d 'Only what these commands have added'
complete -c vip -n "__fish_vip_using_subcommand show" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c vip -n "__fish_vip_using_subcommand show" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c vip -n "__fish_vip_using_subcommand show" -s h -l help -d 'Print help'
complete -c vip -n "__fish_vip_using_subcommand show" -s V -l version -d 'Print version'
complete -c vip -n "__fish_vip_using_subcommand add" -l dev -d 'The interface, by name or altname [default: the one whose network fits]' -r
complete -c vip -n "__fish_vip_using_subcommand add" -l label -d 'IPv4 label, as in eth0:vip' -r
complete -c vip -n "__fish_vip_using_subcommand add" -l lifetime -d 'The kernel itself removes it after D unless it is renewed: whole seconds, at least 2' -r
complete -c vip -n "__fish_vip_using_subcommand add" -l dad -d 'Look for duplicates first [default: off for IPv4, kernel for IPv6]' -r -f -a "off\t'Not at all'
fast\t'Ask the wire three times within 0.45 s'
full\t'As long as RFC 5227 wants: 4 to 7 s'
kernel\t'IPv6: the kernel does, and the run waits for its verdict'"
complete -c vip -n "__fish_vip_using_subcommand add" -l announce -d 'Announce each added address N times, 200ms apart' -r
complete -c vip -n "__fish_vip_using_subcommand add" -l vmac -d 'Put it on an interface of its own with the MAC of this virtual router, made if need be' -r
complete -c vip -n "__fish_vip_using_subcommand add" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c vip -n "__fish_vip_using_subcommand add" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c vip -n "__fish_vip_using_subcommand add" -l noprefixroute -d 'Add no route to the prefix'
complete -c vip -n "__fish_vip_using_subcommand add" -l deprecated -d 'Never choose it as a source address (preferred lifetime 0)'
complete -c vip -n "__fish_vip_using_subcommand add" -l require-carrier -d 'Refuse (status 75) where the link has no carrier'
complete -c vip -n "__fish_vip_using_subcommand add" -l dry-run -d 'Print the exact changes as records and make none'
complete -c vip -n "__fish_vip_using_subcommand add" -l explain -d 'Print the exact changes in the records of a real run too'
complete -c vip -n "__fish_vip_using_subcommand add" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c vip -n "__fish_vip_using_subcommand add" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c vip -n "__fish_vip_using_subcommand add" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c vip -n "__fish_vip_using_subcommand add" -s V -l version -d 'Print version'
complete -c vip -n "__fish_vip_using_subcommand del" -l dev -d 'The interface [default: the one that carries it]' -r
complete -c vip -n "__fish_vip_using_subcommand del" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c vip -n "__fish_vip_using_subcommand del" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c vip -n "__fish_vip_using_subcommand del" -l mine -d 'Everything that these commands have added, and nothing else'
complete -c vip -n "__fish_vip_using_subcommand del" -l with-secondaries -d 'Take along the secondaries that the kernel removes with the first address of a subnet'
complete -c vip -n "__fish_vip_using_subcommand del" -l kill-connections -d 'End the TCP connections of the address: both ends learn it at once'
complete -c vip -n "__fish_vip_using_subcommand del" -l dry-run -d 'Print the exact changes as records and make none'
complete -c vip -n "__fish_vip_using_subcommand del" -l explain -d 'Print the exact changes in the records of a real run too'
complete -c vip -n "__fish_vip_using_subcommand del" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c vip -n "__fish_vip_using_subcommand del" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c vip -n "__fish_vip_using_subcommand del" -s h -l help -d 'Print help'
complete -c vip -n "__fish_vip_using_subcommand del" -s V -l version -d 'Print version'
complete -c vip -n "__fish_vip_using_subcommand arp" -l dev -d 'The interface [default: the one that carries it, or whose network fits]' -r
complete -c vip -n "__fish_vip_using_subcommand arp" -l count -d 'Say it N times' -r
complete -c vip -n "__fish_vip_using_subcommand arp" -l interval -d 'Time from one round to the next' -r
complete -c vip -n "__fish_vip_using_subcommand arp" -l rate -d 'Send no more than N frames a second' -r
complete -c vip -n "__fish_vip_using_subcommand arp" -l refresh -d 'Go on, and say it again every D' -r
complete -c vip -n "__fish_vip_using_subcommand arp" -l mac -d 'The MAC to announce [default: the interface\'s]' -r
complete -c vip -n "__fish_vip_using_subcommand arp" -l vmac -d 'Announce the virtual router MAC of this VRID' -r
complete -c vip -n "__fish_vip_using_subcommand arp" -l target -d 'Tell this neighbour alone' -r
complete -c vip -n "__fish_vip_using_subcommand arp" -l form -d 'IPv4: which form; some gear obeys only one' -r -f -a "request\t'A question from and for the address itself (RFC 5227)'
reply\t'An answer that nobody asked for'
both\t'Each in turn'"
complete -c vip -n "__fish_vip_using_subcommand arp" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c vip -n "__fish_vip_using_subcommand arp" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c vip -n "__fish_vip_using_subcommand arp" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c vip -n "__fish_vip_using_subcommand arp" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c vip -n "__fish_vip_using_subcommand arp" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c vip -n "__fish_vip_using_subcommand arp" -s V -l version -d 'Print version'
complete -c vip -n "__fish_vip_using_subcommand who" -l dev -d 'The interface [default: the one that carries it, or whose network fits]' -r
complete -c vip -n "__fish_vip_using_subcommand who" -l for -d 'How long to listen for answers' -r
complete -c vip -n "__fish_vip_using_subcommand who" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c vip -n "__fish_vip_using_subcommand who" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c vip -n "__fish_vip_using_subcommand who" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c vip -n "__fish_vip_using_subcommand who" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c vip -n "__fish_vip_using_subcommand who" -s h -l help -d 'Print help'
complete -c vip -n "__fish_vip_using_subcommand who" -s V -l version -d 'Print version'
complete -c vip -n "__fish_vip_using_subcommand dad" -l dev -d 'The interface [default: the one whose network fits]' -r
complete -c vip -n "__fish_vip_using_subcommand dad" -l profile -d 'How thoroughly' -r -f -a "fast\t'A verdict after 0.45 s'
full\t'A verdict after 4 to 7 s, as RFC 5227 has it'"
complete -c vip -n "__fish_vip_using_subcommand dad" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c vip -n "__fish_vip_using_subcommand dad" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c vip -n "__fish_vip_using_subcommand dad" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c vip -n "__fish_vip_using_subcommand dad" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c vip -n "__fish_vip_using_subcommand dad" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c vip -n "__fish_vip_using_subcommand dad" -s V -l version -d 'Print version'
complete -c vip -n "__fish_vip_using_subcommand peers" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c vip -n "__fish_vip_using_subcommand peers" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c vip -n "__fish_vip_using_subcommand peers" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c vip -n "__fish_vip_using_subcommand peers" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c vip -n "__fish_vip_using_subcommand peers" -s h -l help -d 'Print help'
complete -c vip -n "__fish_vip_using_subcommand peers" -s V -l version -d 'Print version'
complete -c vip -n "__fish_vip_using_subcommand tickle" -l peers -d 'The peers that the old owner had: vip.peer records or lines of ss -Hnt (\'-\': standard input)' -r
complete -c vip -n "__fish_vip_using_subcommand tickle" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c vip -n "__fish_vip_using_subcommand tickle" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c vip -n "__fish_vip_using_subcommand tickle" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c vip -n "__fish_vip_using_subcommand tickle" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c vip -n "__fish_vip_using_subcommand tickle" -s h -l help -d 'Print help'
complete -c vip -n "__fish_vip_using_subcommand tickle" -s V -l version -d 'Print version'
complete -c vip -n "__fish_vip_using_subcommand elect" -l vip -d 'The addresses that are elected about' -r
complete -c vip -n "__fish_vip_using_subcommand elect" -l dev -d 'The interface that carries them [default: the one whose network fits]' -r
complete -c vip -n "__fish_vip_using_subcommand elect" -l members -d 'Every node that may serve [default, for a single run: the nodes that the input names]' -r
complete -c vip -n "__fish_vip_using_subcommand elect" -l no-preempt -d 'Leave an address where it is while its node stands; with addresses, for those only' -r
complete -c vip -n "__fish_vip_using_subcommand elect" -l fencing -d 'What proves that a silent node serves no more' -r -f -a "required\t'A record of fence'
none\t'Silence for --take-after; needs a lease, or a split serves twice'"
complete -c vip -n "__fish_vip_using_subcommand elect" -l dead-after -d 'From the last sign of life to the verdict down, as heartbeat recv has it' -r
complete -c vip -n "__fish_vip_using_subcommand elect" -l lifetime -d 'The lifetime of an address, as vip apply has it; the kernel may be half a second late' -r
complete -c vip -n "__fish_vip_using_subcommand elect" -l take-after -d 'From the last sign of life to a take-over [default: dead-after + lifetime + 150ms, the least is 100ms]' -r
complete -c vip -n "__fish_vip_using_subcommand elect" -l standby -d 'While FILE is there this node does not stand; its text is the reason' -r -F
complete -c vip -n "__fish_vip_using_subcommand elect" -l state -d 'Remember from run to run' -r -F
complete -c vip -n "__fish_vip_using_subcommand elect" -l renew -d 'Repeat the conclusion at least every D, for as long as what it rests on holds' -r
complete -c vip -n "__fish_vip_using_subcommand elect" -l for -d 'End after D with the status of the last conclusion' -r
complete -c vip -n "__fish_vip_using_subcommand elect" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c vip -n "__fish_vip_using_subcommand elect" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c vip -n "__fish_vip_using_subcommand elect" -l quorum -d 'Take nothing without a word of quorum; without this flag a run that hears none does not wait for it'
complete -c vip -n "__fish_vip_using_subcommand elect" -l follow -d 'Conclude after each step of the input, and print what changed'
complete -c vip -n "__fish_vip_using_subcommand elect" -l pass -d 'Copy each line of input first'
complete -c vip -n "__fish_vip_using_subcommand elect" -l exit-zero -d 'End with status 0 whatever was concluded'
complete -c vip -n "__fish_vip_using_subcommand elect" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c vip -n "__fish_vip_using_subcommand elect" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c vip -n "__fish_vip_using_subcommand elect" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c vip -n "__fish_vip_using_subcommand elect" -s V -l version -d 'Print version'
complete -c vip -n "__fish_vip_using_subcommand apply" -l on-eof -d 'What the end of input means with --follow' -r -f -a "release\t'Give every address back'
keep\t'Leave what stands'"
complete -c vip -n "__fish_vip_using_subcommand apply" -l for -d 'End after D, leaving what stands' -r
complete -c vip -n "__fish_vip_using_subcommand apply" -l dev -d 'The interface, where an election names none [default: the one whose network fits]' -r
complete -c vip -n "__fish_vip_using_subcommand apply" -l only -d 'These addresses alone; others of ours are taken away' -r
complete -c vip -n "__fish_vip_using_subcommand apply" -l share -d 'Serve these addresses as backup too, where their traffic reaches this node: carried without answering ARP for them' -r
complete -c vip -n "__fish_vip_using_subcommand apply" -l src-route -d 'Send what this host itself sends to other networks from this address while it is here; one of each family' -r
complete -c vip -n "__fish_vip_using_subcommand apply" -l lifetime -d 'The kernel itself removes an address that was not elected again for D: whole seconds, at least 2; with --follow, silence of the input for D gives everything back' -r
complete -c vip -n "__fish_vip_using_subcommand apply" -l lease -d 'The kernel stops answering for an address that was not elected again for D, at least 100ms; silence of the input for D gives everything back' -r
complete -c vip -n "__fish_vip_using_subcommand apply" -l announce -d 'Announce a gained address N times at once, and as often again 5 s later' -r
complete -c vip -n "__fish_vip_using_subcommand apply" -l refresh -d 'Announce what is carried again every D' -r
complete -c vip -n "__fish_vip_using_subcommand apply" -l beat -d 'Write what this node serves (vip.address) to FILE, for heartbeat send --payload' -r -F
complete -c vip -n "__fish_vip_using_subcommand apply" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c vip -n "__fish_vip_using_subcommand apply" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c vip -n "__fish_vip_using_subcommand apply" -l follow -d 'Go on; when the input ends, give everything back'
complete -c vip -n "__fish_vip_using_subcommand apply" -l forward -d 'Send on to the master, as backup, what reaches this node for an address; --share wins for its own'
complete -c vip -n "__fish_vip_using_subcommand apply" -l vmac -d 'Put an address on an interface of its own with the virtual MAC of its election\'s VRID'
complete -c vip -n "__fish_vip_using_subcommand apply" -l kill-connections -d 'End the TCP connections of an address that is given up: both ends learn it at once'
complete -c vip -n "__fish_vip_using_subcommand apply" -l dry-run -d 'Print the exact changes as records and make none'
complete -c vip -n "__fish_vip_using_subcommand apply" -l explain -d 'Print the exact changes in the records of a real run too'
complete -c vip -n "__fish_vip_using_subcommand apply" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c vip -n "__fish_vip_using_subcommand apply" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c vip -n "__fish_vip_using_subcommand apply" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c vip -n "__fish_vip_using_subcommand apply" -s V -l version -d 'Print version'
complete -c vip -n "__fish_vip_using_subcommand watch" -l dev -d 'Only this interface' -r
complete -c vip -n "__fish_vip_using_subcommand watch" -l for -d 'End after D' -r
complete -c vip -n "__fish_vip_using_subcommand watch" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c vip -n "__fish_vip_using_subcommand watch" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c vip -n "__fish_vip_using_subcommand watch" -l mine -d 'Only addresses that these commands have added'
complete -c vip -n "__fish_vip_using_subcommand watch" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c vip -n "__fish_vip_using_subcommand watch" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c vip -n "__fish_vip_using_subcommand watch" -s h -l help -d 'Print help'
complete -c vip -n "__fish_vip_using_subcommand watch" -s V -l version -d 'Print version'
