# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_fence_global_optspecs
    string join \n h/help V/version
end

function __fish_fence_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_fence_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_fence_using_subcommand
    set -l cmd (__fish_fence_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c fence -n "__fish_fence_needs_command" -s h -l help -d 'Print help'
complete -c fence -n "__fish_fence_needs_command" -s V -l version -d 'Print version'
complete -c fence -n "__fish_fence_needs_command" -f -a "off" -d 'Switch a node off; status 0 only when its device says that it is'
complete -c fence -n "__fish_fence_needs_command" -f -a "on" -d 'Switch a node on; its proof ends with that'
complete -c fence -n "__fish_fence_needs_command" -f -a "reboot" -d 'Switch a node off, prove that, and switch it on again'
complete -c fence -n "__fish_fence_needs_command" -f -a "status" -d 'Ask the device of a node whether it is on'
complete -c fence -n "__fish_fence_needs_command" -f -a "records" -d 'Pass records on, and fence the nodes that some of them need off'
complete -c fence -n "__fish_fence_using_subcommand off" -l agent -d 'Fence agent, by name or path; several are levels, tried in order' -r
complete -c fence -n "__fish_fence_using_subcommand off" -l options -d 'What the agent is told: key=value lines, mode 0600; one file for all agents or one for each; {node} in its name is the node\'s' -r
complete -c fence -n "__fish_fence_using_subcommand off" -l via -d 'Let another do it' -r -f -a "stonith\t'Pacemaker\'s fencer, by stonith_admin'"
complete -c fence -n "__fish_fence_using_subcommand off" -l delay -d 'Wait before it, for chance a little longer: of two nodes that would shoot each other one is off by then' -r
complete -c fence -n "__fish_fence_using_subcommand off" -l retries -d 'Try each agent N times more, a second apart' -r
complete -c fence -n "__fish_fence_using_subcommand off" -l limit -d 'How long it may take from the end of the delay; levels and tries share it' -r
complete -c fence -n "__fish_fence_using_subcommand off" -l incarnation -d 'The life of the node that ends [default: the newest that heartbeat recv has heard]' -r
complete -c fence -n "__fish_fence_using_subcommand off" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c fence -n "__fish_fence_using_subcommand off" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c fence -n "__fish_fence_using_subcommand off" -l all -d 'Every agent must say that the node is off, before any switches it on: two power supplies'
complete -c fence -n "__fish_fence_using_subcommand off" -l once -d 'Do nothing where a proof of that life is kept already; for off alone'
complete -c fence -n "__fish_fence_using_subcommand off" -l dry-run -d 'Print the exact changes as records and make none'
complete -c fence -n "__fish_fence_using_subcommand off" -l explain -d 'Print the exact changes in the records of a real run too'
complete -c fence -n "__fish_fence_using_subcommand off" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c fence -n "__fish_fence_using_subcommand off" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c fence -n "__fish_fence_using_subcommand off" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c fence -n "__fish_fence_using_subcommand off" -s V -l version -d 'Print version'
complete -c fence -n "__fish_fence_using_subcommand on" -l agent -d 'Fence agent, by name or path; several are levels, tried in order' -r
complete -c fence -n "__fish_fence_using_subcommand on" -l options -d 'What the agent is told: key=value lines, mode 0600; one file for all agents or one for each; {node} in its name is the node\'s' -r
complete -c fence -n "__fish_fence_using_subcommand on" -l via -d 'Let another do it' -r -f -a "stonith\t'Pacemaker\'s fencer, by stonith_admin'"
complete -c fence -n "__fish_fence_using_subcommand on" -l delay -d 'Wait before it, for chance a little longer: of two nodes that would shoot each other one is off by then' -r
complete -c fence -n "__fish_fence_using_subcommand on" -l retries -d 'Try each agent N times more, a second apart' -r
complete -c fence -n "__fish_fence_using_subcommand on" -l limit -d 'How long it may take from the end of the delay; levels and tries share it' -r
complete -c fence -n "__fish_fence_using_subcommand on" -l incarnation -d 'The life of the node that ends [default: the newest that heartbeat recv has heard]' -r
complete -c fence -n "__fish_fence_using_subcommand on" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c fence -n "__fish_fence_using_subcommand on" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c fence -n "__fish_fence_using_subcommand on" -l all -d 'Every agent must say that the node is off, before any switches it on: two power supplies'
complete -c fence -n "__fish_fence_using_subcommand on" -l once -d 'Do nothing where a proof of that life is kept already; for off alone'
complete -c fence -n "__fish_fence_using_subcommand on" -l dry-run -d 'Print the exact changes as records and make none'
complete -c fence -n "__fish_fence_using_subcommand on" -l explain -d 'Print the exact changes in the records of a real run too'
complete -c fence -n "__fish_fence_using_subcommand on" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c fence -n "__fish_fence_using_subcommand on" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c fence -n "__fish_fence_using_subcommand on" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c fence -n "__fish_fence_using_subcommand on" -s V -l version -d 'Print version'
complete -c fence -n "__fish_fence_using_subcommand reboot" -l agent -d 'Fence agent, by name or path; several are levels, tried in order' -r
complete -c fence -n "__fish_fence_using_subcommand reboot" -l options -d 'What the agent is told: key=value lines, mode 0600; one file for all agents or one for each; {node} in its name is the node\'s' -r
complete -c fence -n "__fish_fence_using_subcommand reboot" -l via -d 'Let another do it' -r -f -a "stonith\t'Pacemaker\'s fencer, by stonith_admin'"
complete -c fence -n "__fish_fence_using_subcommand reboot" -l delay -d 'Wait before it, for chance a little longer: of two nodes that would shoot each other one is off by then' -r
complete -c fence -n "__fish_fence_using_subcommand reboot" -l retries -d 'Try each agent N times more, a second apart' -r
complete -c fence -n "__fish_fence_using_subcommand reboot" -l limit -d 'How long it may take from the end of the delay; levels and tries share it' -r
complete -c fence -n "__fish_fence_using_subcommand reboot" -l incarnation -d 'The life of the node that ends [default: the newest that heartbeat recv has heard]' -r
complete -c fence -n "__fish_fence_using_subcommand reboot" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c fence -n "__fish_fence_using_subcommand reboot" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c fence -n "__fish_fence_using_subcommand reboot" -l all -d 'Every agent must say that the node is off, before any switches it on: two power supplies'
complete -c fence -n "__fish_fence_using_subcommand reboot" -l once -d 'Do nothing where a proof of that life is kept already; for off alone'
complete -c fence -n "__fish_fence_using_subcommand reboot" -l dry-run -d 'Print the exact changes as records and make none'
complete -c fence -n "__fish_fence_using_subcommand reboot" -l explain -d 'Print the exact changes in the records of a real run too'
complete -c fence -n "__fish_fence_using_subcommand reboot" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c fence -n "__fish_fence_using_subcommand reboot" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c fence -n "__fish_fence_using_subcommand reboot" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c fence -n "__fish_fence_using_subcommand reboot" -s V -l version -d 'Print version'
complete -c fence -n "__fish_fence_using_subcommand status" -l agent -d 'Fence agent, by name or path; several are levels, tried in order' -r
complete -c fence -n "__fish_fence_using_subcommand status" -l options -d 'What the agent is told: key=value lines, mode 0600; one file for all agents or one for each; {node} in its name is the node\'s' -r
complete -c fence -n "__fish_fence_using_subcommand status" -l via -d 'Let another do it' -r -f -a "stonith\t'Pacemaker\'s fencer, by stonith_admin'"
complete -c fence -n "__fish_fence_using_subcommand status" -l delay -d 'Wait before it, for chance a little longer: of two nodes that would shoot each other one is off by then' -r
complete -c fence -n "__fish_fence_using_subcommand status" -l retries -d 'Try each agent N times more, a second apart' -r
complete -c fence -n "__fish_fence_using_subcommand status" -l limit -d 'How long it may take from the end of the delay; levels and tries share it' -r
complete -c fence -n "__fish_fence_using_subcommand status" -l incarnation -d 'The life of the node that ends [default: the newest that heartbeat recv has heard]' -r
complete -c fence -n "__fish_fence_using_subcommand status" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c fence -n "__fish_fence_using_subcommand status" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c fence -n "__fish_fence_using_subcommand status" -l all -d 'Every agent must say that the node is off, before any switches it on: two power supplies'
complete -c fence -n "__fish_fence_using_subcommand status" -l once -d 'Do nothing where a proof of that life is kept already; for off alone'
complete -c fence -n "__fish_fence_using_subcommand status" -l dry-run -d 'Print the exact changes as records and make none'
complete -c fence -n "__fish_fence_using_subcommand status" -l explain -d 'Print the exact changes in the records of a real run too'
complete -c fence -n "__fish_fence_using_subcommand status" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c fence -n "__fish_fence_using_subcommand status" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c fence -n "__fish_fence_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c fence -n "__fish_fence_using_subcommand status" -s V -l version -d 'Print version'
complete -c fence -n "__fish_fence_using_subcommand records" -l agent -d 'Fence agent, by name or path; several are levels, tried in order' -r
complete -c fence -n "__fish_fence_using_subcommand records" -l options -d 'What the agent is told: key=value lines, mode 0600; one file for all agents or one for each; {node} in its name is the node\'s' -r
complete -c fence -n "__fish_fence_using_subcommand records" -l via -d 'Let another do it' -r -f -a "stonith\t'Pacemaker\'s fencer, by stonith_admin'"
complete -c fence -n "__fish_fence_using_subcommand records" -l delay -d 'Wait before it, for chance a little longer: of two nodes that would shoot each other one is off by then' -r
complete -c fence -n "__fish_fence_using_subcommand records" -l retries -d 'Try each agent N times more, a second apart' -r
complete -c fence -n "__fish_fence_using_subcommand records" -l limit -d 'How long it may take from the end of the delay; levels and tries share it' -r
complete -c fence -n "__fish_fence_using_subcommand records" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c fence -n "__fish_fence_using_subcommand records" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c fence -n "__fish_fence_using_subcommand records" -l all -d 'Every agent must say that the node is off, before any switches it on: two power supplies'
complete -c fence -n "__fish_fence_using_subcommand records" -l tell -d 'Say each fencing on standard error too, for a log'
complete -c fence -n "__fish_fence_using_subcommand records" -l exit-zero -d 'End with status 0 whatever was concluded'
complete -c fence -n "__fish_fence_using_subcommand records" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c fence -n "__fish_fence_using_subcommand records" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c fence -n "__fish_fence_using_subcommand records" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c fence -n "__fish_fence_using_subcommand records" -s V -l version -d 'Print version'
