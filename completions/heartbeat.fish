# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_heartbeat_global_optspecs
    string join \n h/help V/version
end

function __fish_heartbeat_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_heartbeat_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_heartbeat_using_subcommand
    set -l cmd (__fish_heartbeat_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c heartbeat -n "__fish_heartbeat_needs_command" -s h -l help -d 'Print help'
complete -c heartbeat -n "__fish_heartbeat_needs_command" -s V -l version -d 'Print version'
complete -c heartbeat -n "__fish_heartbeat_needs_command" -f -a "send" -d 'Send signed beats, with the newest record of each payload'
complete -c heartbeat -n "__fish_heartbeat_needs_command" -f -a "recv" -d 'Hear beats, and say when a node comes, falls silent or leaves'
complete -c heartbeat -n "__fish_heartbeat_using_subcommand send" -l to -d 'The peers on one link, separated by commas; given again, the next link' -r
complete -c heartbeat -n "__fish_heartbeat_using_subcommand send" -l group -d 'A multicast group; each is one more link' -r
complete -c heartbeat -n "__fish_heartbeat_using_subcommand send" -l key -d 'File with the cluster\'s keys: lines \'[ID] HEX\', 32 bytes or more, mode 0600; the first signs' -r
complete -c heartbeat -n "__fish_heartbeat_using_subcommand send" -l cluster -d 'Name of the cluster; frames of others are refused' -r
complete -c heartbeat -n "__fish_heartbeat_using_subcommand send" -l auth -d 'Step of a roll-out of signatures' -r -f -a "receive-only\t'First: understand signatures, send none'
permissive\t'Then: sign, and still take unsigned frames'
enforce\t'At last: take signed frames only'"
complete -c heartbeat -n "__fish_heartbeat_using_subcommand send" -l interval -d 'Time from beat to beat' -r
complete -c heartbeat -n "__fish_heartbeat_using_subcommand send" -l count -d 'End after N beats' -r
complete -c heartbeat -n "__fish_heartbeat_using_subcommand send" -l payload -d 'Carry the newest record of each kind and subject in FILE (\'-\': the newest of standard input); may be given several times' -r
complete -c heartbeat -n "__fish_heartbeat_using_subcommand send" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c heartbeat -n "__fish_heartbeat_using_subcommand send" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c heartbeat -n "__fish_heartbeat_using_subcommand send" -l goodbye -d 'On TERM say goodbye, with what the payload says that this node still owns'
complete -c heartbeat -n "__fish_heartbeat_using_subcommand send" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c heartbeat -n "__fish_heartbeat_using_subcommand send" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c heartbeat -n "__fish_heartbeat_using_subcommand send" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c heartbeat -n "__fish_heartbeat_using_subcommand send" -s V -l version -d 'Print version'
complete -c heartbeat -n "__fish_heartbeat_using_subcommand recv" -l bind -d 'Where to listen; a multicast group is joined; several make several links' -r
complete -c heartbeat -n "__fish_heartbeat_using_subcommand recv" -l key -d 'File with the cluster\'s keys: lines \'[ID] HEX\', 32 bytes or more, mode 0600; the first signs' -r
complete -c heartbeat -n "__fish_heartbeat_using_subcommand recv" -l cluster -d 'Name of the cluster; frames of others are refused' -r
complete -c heartbeat -n "__fish_heartbeat_using_subcommand recv" -l auth -d 'Step of a roll-out of signatures' -r -f -a "receive-only\t'First: understand signatures, send none'
permissive\t'Then: sign, and still take unsigned frames'
enforce\t'At last: take signed frames only'"
complete -c heartbeat -n "__fish_heartbeat_using_subcommand recv" -l expect -d 'Nodes that should be there; without --follow the run ends when all are up' -r
complete -c heartbeat -n "__fish_heartbeat_using_subcommand recv" -l warn-after -d 'A silence worth a word [default: half of --dead-after]' -r
complete -c heartbeat -n "__fish_heartbeat_using_subcommand recv" -l dead-after -d 'A silence on all links that means down' -r
complete -c heartbeat -n "__fish_heartbeat_using_subcommand recv" -l init-dead -d 'How long an expected node may stay unheard at the start [default: twice --dead-after]' -r
complete -c heartbeat -n "__fish_heartbeat_using_subcommand recv" -l for -d 'End after D with the status of what was heard [default without --follow: --dead-after]' -r
complete -c heartbeat -n "__fish_heartbeat_using_subcommand recv" -l renew -d 'Repeat what is known of each node every D' -r
complete -c heartbeat -n "__fish_heartbeat_using_subcommand recv" -l max-nodes -d 'Remember no more nodes than N' -r
complete -c heartbeat -n "__fish_heartbeat_using_subcommand recv" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c heartbeat -n "__fish_heartbeat_using_subcommand recv" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c heartbeat -n "__fish_heartbeat_using_subcommand recv" -l check -d 'Does each link carry beats both ways? Names the link that does not, whose rules are at fault, and what opens the port; ends when that is known of all; needs heartbeat send of this node beside it, and both on the peers'
complete -c heartbeat -n "__fish_heartbeat_using_subcommand recv" -l follow -d 'Go on, and report what changes'
complete -c heartbeat -n "__fish_heartbeat_using_subcommand recv" -l beats -d 'Report every beat'
complete -c heartbeat -n "__fish_heartbeat_using_subcommand recv" -l tell -d 'Say each change on standard error too, for a log'
complete -c heartbeat -n "__fish_heartbeat_using_subcommand recv" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c heartbeat -n "__fish_heartbeat_using_subcommand recv" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c heartbeat -n "__fish_heartbeat_using_subcommand recv" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c heartbeat -n "__fish_heartbeat_using_subcommand recv" -s V -l version -d 'Print version'
