# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_bucket_global_optspecs
    string join \n h/help V/version
end

function __fish_bucket_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_bucket_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_bucket_using_subcommand
    set -l cmd (__fish_bucket_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c bucket -n "__fish_bucket_needs_command" -s h -l help -d 'Print help'
complete -c bucket -n "__fish_bucket_needs_command" -s V -l version -d 'Print version'
complete -c bucket -n "__fish_bucket_needs_command" -f -a "init" -d 'Make a cluster IP on this node: rules, membership, address; the same on every node'
complete -c bucket -n "__fish_bucket_needs_command" -f -a "show" -d 'Show which buckets this node answers for, as read back from the kernel'
complete -c bucket -n "__fish_bucket_needs_command" -f -a "set" -d 'Take buckets or give them up; twice is once'
complete -c bucket -n "__fish_bucket_needs_command" -f -a "plan" -d 'Conclude from node records who should own what, and what this node may answer for now'
complete -c bucket -n "__fish_bucket_needs_command" -f -a "apply" -d 'Make the kernel agree with the plans on standard input, and renew the lease by them'
complete -c bucket -n "__fish_bucket_needs_command" -f -a "check" -d 'Check that rules, address, membership and settings agree; say what mends them'
complete -c bucket -n "__fish_bucket_needs_command" -f -a "verify" -d 'Hold the records of several nodes against each other: gaps, overlaps, other parameters'
complete -c bucket -n "__fish_bucket_needs_command" -f -a "watch" -d 'Report as it happens that rules, address, membership, setting or MAC were lost or changed'
complete -c bucket -n "__fish_bucket_needs_command" -f -a "clear" -d 'Take a cluster IP away: close it, then the address, the membership, the rules'
complete -c bucket -n "__fish_bucket_using_subcommand init" -l dev -d 'The interface on which clients reach it' -r
complete -c bucket -n "__fish_bucket_using_subcommand init" -l mac -d 'The MAC that all nodes answer with [default: made from VIP alone]' -r
complete -c bucket -n "__fish_bucket_using_subcommand init" -l total -d 'How many buckets there are, the same on every node' -r
complete -c bucket -n "__fish_bucket_using_subcommand init" -l local -d 'Answer for these from the start [default: none, or what is held already]' -r
complete -c bucket -n "__fish_bucket_using_subcommand init" -l seed -d 'The seed of the hash, decimal or 0x [default: made from VIP alone]' -r
complete -c bucket -n "__fish_bucket_using_subcommand init" -l mode -d 'What is hashed: sourceip, sourceip-sourceport or sourceip-sourceport-destport' -r
complete -c bucket -n "__fish_bucket_using_subcommand init" -l proto -d 'Serve this protocol alone' -r
complete -c bucket -n "__fish_bucket_using_subcommand init" -l port -d 'Serve this port alone' -r
complete -c bucket -n "__fish_bucket_using_subcommand init" -l rest -d 'What happens to other protocols and ports: drop, or hash like the rest' -r
complete -c bucket -n "__fish_bucket_using_subcommand init" -l lease -d 'The kernel stops serving after D unless bucket apply renews it; at least 100ms' -r
complete -c bucket -n "__fish_bucket_using_subcommand init" -l backend -d 'What keeps the buckets' -r -f -a "nft\t'Rules of nftables'
proc\t'The file of the CLUSTERIP target, which left the kernel in 2023'
file\t'A state file: for rehearsal, without root'"
complete -c bucket -n "__fish_bucket_using_subcommand init" -l proc-root -d 'The root of the proc file system' -r -F
complete -c bucket -n "__fish_bucket_using_subcommand init" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c bucket -n "__fish_bucket_using_subcommand init" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c bucket -n "__fish_bucket_using_subcommand init" -l unicast -d 'Take an ordinary MAC, for routers that refuse a group MAC; the switch must flood it'
complete -c bucket -n "__fish_bucket_using_subcommand init" -l remember -d 'Remember the TCP peers of all nodes for an hour, so that a take-over can wake those that only wait (--tickle of bucket set and apply); costs each of their packets a look-up'
complete -c bucket -n "__fish_bucket_using_subcommand init" -l dry-run -d 'Print the exact changes as records and make none'
complete -c bucket -n "__fish_bucket_using_subcommand init" -l explain -d 'Print the exact changes in the records of a real run too'
complete -c bucket -n "__fish_bucket_using_subcommand init" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c bucket -n "__fish_bucket_using_subcommand init" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c bucket -n "__fish_bucket_using_subcommand init" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c bucket -n "__fish_bucket_using_subcommand init" -s V -l version -d 'Print version'
complete -c bucket -n "__fish_bucket_using_subcommand show" -l backend -d 'What keeps the buckets' -r -f -a "nft\t'Rules of nftables'
proc\t'The file of the CLUSTERIP target, which left the kernel in 2023'
file\t'A state file: for rehearsal, without root'"
complete -c bucket -n "__fish_bucket_using_subcommand show" -l proc-root -d 'The root of the proc file system' -r -F
complete -c bucket -n "__fish_bucket_using_subcommand show" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c bucket -n "__fish_bucket_using_subcommand show" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c bucket -n "__fish_bucket_using_subcommand show" -l beat -d 'Print what a beat carries (bucket.state) instead'
complete -c bucket -n "__fish_bucket_using_subcommand show" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c bucket -n "__fish_bucket_using_subcommand show" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c bucket -n "__fish_bucket_using_subcommand show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c bucket -n "__fish_bucket_using_subcommand show" -s V -l version -d 'Print version'
complete -c bucket -n "__fish_bucket_using_subcommand set" -l add -d 'Take these' -r
complete -c bucket -n "__fish_bucket_using_subcommand set" -l remove -d 'Give these up' -r
complete -c bucket -n "__fish_bucket_using_subcommand set" -l only -d 'Have these and no others' -r
complete -c bucket -n "__fish_bucket_using_subcommand set" -l total -d 'How many buckets there are, where the backend does not know (proc)' -r
complete -c bucket -n "__fish_bucket_using_subcommand set" -l backend -d 'What keeps the buckets' -r -f -a "nft\t'Rules of nftables'
proc\t'The file of the CLUSTERIP target, which left the kernel in 2023'
file\t'A state file: for rehearsal, without root'"
complete -c bucket -n "__fish_bucket_using_subcommand set" -l proc-root -d 'The root of the proc file system' -r -F
complete -c bucket -n "__fish_bucket_using_subcommand set" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c bucket -n "__fish_bucket_using_subcommand set" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c bucket -n "__fish_bucket_using_subcommand set" -l drain -d 'Of what is taken, serve only TCP connections that are opened from now on'
complete -c bucket -n "__fish_bucket_using_subcommand set" -l take-over -d 'Serve all of what is taken, and reset TCP that nobody here opened [default]'
complete -c bucket -n "__fish_bucket_using_subcommand set" -l tickle -d 'Wake the TCP peers of what is taken over, so that those who only wait notice; needs init --remember'
complete -c bucket -n "__fish_bucket_using_subcommand set" -l settle -d 'Close what is given up altogether, and end every drain and take-over'
complete -c bucket -n "__fish_bucket_using_subcommand set" -l dry-run -d 'Print the exact changes as records and make none'
complete -c bucket -n "__fish_bucket_using_subcommand set" -l explain -d 'Print the exact changes in the records of a real run too'
complete -c bucket -n "__fish_bucket_using_subcommand set" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c bucket -n "__fish_bucket_using_subcommand set" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c bucket -n "__fish_bucket_using_subcommand set" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c bucket -n "__fish_bucket_using_subcommand set" -s V -l version -d 'Print version'
complete -c bucket -n "__fish_bucket_using_subcommand plan" -l total -d 'How many buckets there are' -r
complete -c bucket -n "__fish_bucket_using_subcommand plan" -l home -d 'Who owns what when all are well: NODE=LIST,... or a file with one \'NODE LIST\' a line' -r
complete -c bucket -n "__fish_bucket_using_subcommand plan" -l weights -d 'Shares by weight: NODE=N,... [default: the sizes of the homes]' -r
complete -c bucket -n "__fish_bucket_using_subcommand plan" -l config -d 'The digest by which nodes see that they run the same configuration [default: made from these flags]' -r
complete -c bucket -n "__fish_bucket_using_subcommand plan" -l fencing -d 'What proves that a silent node serves no more' -r -f -a "required\t'A record of fence'
none\t'Silence for --take-after; needs a lease, or a split serves twice'"
complete -c bucket -n "__fish_bucket_using_subcommand plan" -l dead-after -d 'From the last sign of life to the verdict down, as heartbeat recv has it' -r
complete -c bucket -n "__fish_bucket_using_subcommand plan" -l lease -d 'The lease of the cluster IP, as bucket init has it' -r
complete -c bucket -n "__fish_bucket_using_subcommand plan" -l take-after -d 'From the last sign of life to a take-over [default: dead-after + lease + 150ms, the least is 100ms]' -r
complete -c bucket -n "__fish_bucket_using_subcommand plan" -l wait-for-all -d 'Take nothing before every node was heard once [default: yes for two nodes]' -r -f -a "yes\t''
no\t''"
complete -c bucket -n "__fish_bucket_using_subcommand plan" -l own -d 'What this node holds, as bucket apply --beat writes it; read again when it changes' -r -F
complete -c bucket -n "__fish_bucket_using_subcommand plan" -l lan-link -d 'Give up while beats on link N say that this node\'s LAN carries nothing, also in one direction' -r
complete -c bucket -n "__fish_bucket_using_subcommand plan" -l standby -d 'While FILE is there this node drains out; its text is the reason' -r -F
complete -c bucket -n "__fish_bucket_using_subcommand plan" -l state -d 'Remember from run to run' -r -F
complete -c bucket -n "__fish_bucket_using_subcommand plan" -l renew -d 'Repeat the conclusion at least every D, for as long as what it rests on holds' -r
complete -c bucket -n "__fish_bucket_using_subcommand plan" -l for -d 'End after D with the status of the last conclusion' -r
complete -c bucket -n "__fish_bucket_using_subcommand plan" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c bucket -n "__fish_bucket_using_subcommand plan" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c bucket -n "__fish_bucket_using_subcommand plan" -l no-fail-back -d 'Leave buckets where they are when their home comes back'
complete -c bucket -n "__fish_bucket_using_subcommand plan" -l quorum -d 'Take nothing without a word of quorum; without this flag a run that hears none does not wait for it'
complete -c bucket -n "__fish_bucket_using_subcommand plan" -l health -d 'Give nothing to a node that has told no score of its health; without this flag it counts as well'
complete -c bucket -n "__fish_bucket_using_subcommand plan" -l follow -d 'Conclude after each step of the input, and print what changed'
complete -c bucket -n "__fish_bucket_using_subcommand plan" -l pass -d 'Copy each line of input first'
complete -c bucket -n "__fish_bucket_using_subcommand plan" -l exit-zero -d 'End with status 0 whatever was concluded'
complete -c bucket -n "__fish_bucket_using_subcommand plan" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c bucket -n "__fish_bucket_using_subcommand plan" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c bucket -n "__fish_bucket_using_subcommand plan" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c bucket -n "__fish_bucket_using_subcommand plan" -s V -l version -d 'Print version'
complete -c bucket -n "__fish_bucket_using_subcommand apply" -l on-eof -d 'What the end of input means with --follow' -r -f -a "release\t'Close every bucket, established connections too'
keep\t'Leave what stands'"
complete -c bucket -n "__fish_bucket_using_subcommand apply" -l for -d 'End after D' -r
complete -c bucket -n "__fish_bucket_using_subcommand apply" -l drain-max -d 'With --follow, cut what is left of a drain after D' -r
complete -c bucket -n "__fish_bucket_using_subcommand apply" -l beat -d 'Write what is held (bucket.state) to FILE, for heartbeat send --payload and bucket plan --own' -r -F
complete -c bucket -n "__fish_bucket_using_subcommand apply" -l backend -d 'What keeps the buckets' -r -f -a "nft\t'Rules of nftables'
proc\t'The file of the CLUSTERIP target, which left the kernel in 2023'
file\t'A state file: for rehearsal, without root'"
complete -c bucket -n "__fish_bucket_using_subcommand apply" -l proc-root -d 'The root of the proc file system' -r -F
complete -c bucket -n "__fish_bucket_using_subcommand apply" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c bucket -n "__fish_bucket_using_subcommand apply" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c bucket -n "__fish_bucket_using_subcommand apply" -l follow -d 'Go on; when the input ends or falls silent for as long as the lease, release everything'
complete -c bucket -n "__fish_bucket_using_subcommand apply" -l tickle -d 'Wake the TCP peers of what is taken over, so that those who only wait notice; needs init --remember'
complete -c bucket -n "__fish_bucket_using_subcommand apply" -l dry-run -d 'Print the exact changes as records and make none'
complete -c bucket -n "__fish_bucket_using_subcommand apply" -l explain -d 'Print the exact changes in the records of a real run too'
complete -c bucket -n "__fish_bucket_using_subcommand apply" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c bucket -n "__fish_bucket_using_subcommand apply" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c bucket -n "__fish_bucket_using_subcommand apply" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c bucket -n "__fish_bucket_using_subcommand apply" -s V -l version -d 'Print version'
complete -c bucket -n "__fish_bucket_using_subcommand check" -l backend -d 'What keeps the buckets' -r -f -a "nft\t'Rules of nftables'
proc\t'The file of the CLUSTERIP target, which left the kernel in 2023'
file\t'A state file: for rehearsal, without root'"
complete -c bucket -n "__fish_bucket_using_subcommand check" -l proc-root -d 'The root of the proc file system' -r -F
complete -c bucket -n "__fish_bucket_using_subcommand check" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c bucket -n "__fish_bucket_using_subcommand check" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c bucket -n "__fish_bucket_using_subcommand check" -l wire -d 'Send one frame to the cluster MAC, and ask who heard it; each bucket watch on it answers'
complete -c bucket -n "__fish_bucket_using_subcommand check" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c bucket -n "__fish_bucket_using_subcommand check" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c bucket -n "__fish_bucket_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c bucket -n "__fish_bucket_using_subcommand check" -s V -l version -d 'Print version'
complete -c bucket -n "__fish_bucket_using_subcommand verify" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c bucket -n "__fish_bucket_using_subcommand verify" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c bucket -n "__fish_bucket_using_subcommand verify" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c bucket -n "__fish_bucket_using_subcommand verify" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c bucket -n "__fish_bucket_using_subcommand verify" -s h -l help -d 'Print help'
complete -c bucket -n "__fish_bucket_using_subcommand verify" -s V -l version -d 'Print version'
complete -c bucket -n "__fish_bucket_using_subcommand watch" -l for -d 'End after D' -r
complete -c bucket -n "__fish_bucket_using_subcommand watch" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c bucket -n "__fish_bucket_using_subcommand watch" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c bucket -n "__fish_bucket_using_subcommand watch" -l repair -d 'Put back at once what was lost; buckets only while their lease would still hold'
complete -c bucket -n "__fish_bucket_using_subcommand watch" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c bucket -n "__fish_bucket_using_subcommand watch" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c bucket -n "__fish_bucket_using_subcommand watch" -s h -l help -d 'Print help'
complete -c bucket -n "__fish_bucket_using_subcommand watch" -s V -l version -d 'Print version'
complete -c bucket -n "__fish_bucket_using_subcommand clear" -l backend -d 'What keeps the buckets' -r -f -a "nft\t'Rules of nftables'
proc\t'The file of the CLUSTERIP target, which left the kernel in 2023'
file\t'A state file: for rehearsal, without root'"
complete -c bucket -n "__fish_bucket_using_subcommand clear" -l proc-root -d 'The root of the proc file system' -r -F
complete -c bucket -n "__fish_bucket_using_subcommand clear" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c bucket -n "__fish_bucket_using_subcommand clear" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c bucket -n "__fish_bucket_using_subcommand clear" -l dry-run -d 'Print the exact changes as records and make none'
complete -c bucket -n "__fish_bucket_using_subcommand clear" -l explain -d 'Print the exact changes in the records of a real run too'
complete -c bucket -n "__fish_bucket_using_subcommand clear" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c bucket -n "__fish_bucket_using_subcommand clear" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c bucket -n "__fish_bucket_using_subcommand clear" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c bucket -n "__fish_bucket_using_subcommand clear" -s V -l version -d 'Print version'
