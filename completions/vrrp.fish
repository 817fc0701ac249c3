# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_vrrp_global_optspecs
    string join \n h/help V/version
end

function __fish_vrrp_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_vrrp_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_vrrp_using_subcommand
    set -l cmd (__fish_vrrp_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c vrrp -n "__fish_vrrp_needs_command" -s h -l help -d 'Print help'
complete -c vrrp -n "__fish_vrrp_needs_command" -s V -l version -d 'Print version'
complete -c vrrp -n "__fish_vrrp_needs_command" -f -a "run" -d 'Be a virtual router: say who is master, as the protocol has it'
complete -c vrrp -n "__fish_vrrp_needs_command" -f -a "recv" -d 'Hear adverts: masters, priorities, intervals, and every fault of theirs'
complete -c vrrp -n "__fish_vrrp_needs_command" -f -a "send" -d 'Send adverts: to try a receiver, or to resign for a router that cannot'
complete -c vrrp -n "__fish_vrrp_using_subcommand run" -l dev -d 'The interface' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand run" -l vrid -d 'Number of the virtual router on its LAN' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand run" -l priority -d 'Base priority: 255 is the owner of the address' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand run" -l vip -d 'The virtual addresses, of one family' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand run" -l interval -d 'Time from advert to advert: whole seconds in version 2, from 10ms on in version 3' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand run" -l version -d 'Version of the protocol: 2 (IPv4 only) or 3' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand run" -l checksum -d 'Sum of version 3 adverts over IPv4' -r -f -a "auto\t'In the form that the other routers use; with a pseudo-header until one is heard'
rfc9568\t'Over the message alone'
pseudo\t'With a pseudo-header, as keepalived sends it unless told otherwise'"
complete -c vrrp -n "__fish_vrrp_using_subcommand run" -l peer -d 'Send to these routers alone instead of the multicast group' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand run" -l key -d 'Sign version 3 adverts, and check those of others: lines \'[ID] HEX\', 32 bytes or more, mode 0600; the first signs' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand run" -l auth -d 'Step of a roll-out of signatures' -r -f -a "receive-only\t'First: understand signatures, send none'
permissive\t'Then: sign, and still take unsigned frames'
enforce\t'At last: take signed frames only'"
complete -c vrrp -n "__fish_vrrp_using_subcommand run" -l config -d 'Several virtual routers: a line each, \'VRID vip=ADDR/LEN,... priority=N\', with the words of the flags as keys (and preempt=yes|no); read anew on HUP' -r -F
complete -c vrrp -n "__fish_vrrp_using_subcommand run" -l no-preempt -d 'Leave a living master of lower priority alone; with addresses, for their routers only' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand run" -l preempt-delay -d 'Leave such a master alone for D; its death is no preemption' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand run" -l sync -d 'Routers of one NAME are master together or not at all' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand run" -l track -d 'Take the effective priority from the health.score records on standard input; when they end, the last one holds until it expires, then the priority is 1' -r -f -a "-\t''"
complete -c vrrp -n "__fish_vrrp_using_subcommand run" -l renew -d 'Repeat each state every D; it holds for three times as long, so that whoever acts on it notices when this does not run [default: the shortest interval, but 100ms to 1s]' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand run" -l standby -d 'Take no part while FILE is there [default: standby in the state folder]' -r -F
complete -c vrrp -n "__fish_vrrp_using_subcommand run" -l for -d 'End after D' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand run" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand run" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand run" -l vmac -d 'Send from the virtual router\'s MAC, as the RFC asks'
complete -c vrrp -n "__fish_vrrp_using_subcommand run" -l check -d 'Look whether all of this can be used, and do nothing'
complete -c vrrp -n "__fish_vrrp_using_subcommand run" -l no-resign -d 'Leave without resigning or giving up, and go on where an earlier process left so; for a new binary or other flags, with vip apply --on-eof keep'
complete -c vrrp -n "__fish_vrrp_using_subcommand run" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c vrrp -n "__fish_vrrp_using_subcommand run" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c vrrp -n "__fish_vrrp_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c vrrp -n "__fish_vrrp_using_subcommand recv" -l dev -d 'The interface' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand recv" -l vrid -d 'This virtual router alone' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand recv" -l key -d 'Check the signatures of version 3 adverts with these keys: lines \'[ID] HEX\', mode 0600' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand recv" -l check -d 'Do this host\'s own rules let VRRP out and in, and can what is heard be believed? Names the rule that is missing; sends one advert that never leaves this host' -r -f -a "ipv4\t''
ipv6\t''
both\t'Each family that the interface has an address of'"
complete -c vrrp -n "__fish_vrrp_using_subcommand recv" -l for -d 'Listen for D [default without --follow: 4s, more than three intervals of 1s]' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand recv" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand recv" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand recv" -l follow -d 'Print each advert as it comes'
complete -c vrrp -n "__fish_vrrp_using_subcommand recv" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c vrrp -n "__fish_vrrp_using_subcommand recv" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c vrrp -n "__fish_vrrp_using_subcommand recv" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c vrrp -n "__fish_vrrp_using_subcommand recv" -s V -l version -d 'Print version'
complete -c vrrp -n "__fish_vrrp_using_subcommand send" -l dev -d 'The interface' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand send" -l vrid -d 'Number of the virtual router on its LAN' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand send" -l priority -d 'Base priority: 255 is the owner of the address' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand send" -l vip -d 'The virtual addresses, of one family' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand send" -l interval -d 'Time from advert to advert: whole seconds in version 2, from 10ms on in version 3' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand send" -l version -d 'Version of the protocol: 2 (IPv4 only) or 3' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand send" -l checksum -d 'Sum of version 3 adverts over IPv4' -r -f -a "auto\t'In the form that the other routers use; with a pseudo-header until one is heard'
rfc9568\t'Over the message alone'
pseudo\t'With a pseudo-header, as keepalived sends it unless told otherwise'"
complete -c vrrp -n "__fish_vrrp_using_subcommand send" -l peer -d 'Send to these routers alone instead of the multicast group' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand send" -l key -d 'Sign version 3 adverts, and check those of others: lines \'[ID] HEX\', 32 bytes or more, mode 0600; the first signs' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand send" -l auth -d 'Step of a roll-out of signatures' -r -f -a "receive-only\t'First: understand signatures, send none'
permissive\t'Then: sign, and still take unsigned frames'
enforce\t'At last: take signed frames only'"
complete -c vrrp -n "__fish_vrrp_using_subcommand send" -l count -d 'Send N adverts, one each interval' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand send" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand send" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c vrrp -n "__fish_vrrp_using_subcommand send" -l vmac -d 'Send from the virtual router\'s MAC, as the RFC asks'
complete -c vrrp -n "__fish_vrrp_using_subcommand send" -l resign -d 'Send priority 0: the backups need not wait for silence'
complete -c vrrp -n "__fish_vrrp_using_subcommand send" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c vrrp -n "__fish_vrrp_using_subcommand send" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c vrrp -n "__fish_vrrp_using_subcommand send" -s h -l help -d 'Print help (see more with \'--help\')'
