_health() {
    local i cur prev opts cmd
    COMPREPLY=()
    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
        cur="$2"
    else
        cur="${COMP_WORDS[COMP_CWORD]}"
    fi
    prev="$3"
    cmd=""
    opts=""

    for i in "${COMP_WORDS[@]:0:COMP_CWORD}"
    do
        case "${cmd},${i}" in
            ",$1")
                cmd="health"
                ;;
            health,damp)
                cmd="health__subcmd__damp"
                ;;
            health,disk)
                cmd="health__subcmd__disk"
                ;;
            health,dns)
                cmd="health__subcmd__dns"
                ;;
            health,exec)
                cmd="health__subcmd__exec"
                ;;
            health,http)
                cmd="health__subcmd__http"
                ;;
            health,link)
                cmd="health__subcmd__link"
                ;;
            health,load)
                cmd="health__subcmd__load"
                ;;
            health,memory)
                cmd="health__subcmd__memory"
                ;;
            health,ping)
                cmd="health__subcmd__ping"
                ;;
            health,process)
                cmd="health__subcmd__process"
                ;;
            health,score)
                cmd="health__subcmd__score"
                ;;
            health,tcp)
                cmd="health__subcmd__tcp"
                ;;
            *)
                ;;
        esac
    done

    case "${cmd}" in
        health)
            opts="-h -V --help --version link load disk memory tcp http ping dns process exec damp score"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 1 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        health__subcmd__damp)
            opts="-t -h -V --rise --fall --hold --penalty --state --exit-zero --table --schema --node --timeout --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --rise)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fall)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hold)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --state)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --node)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        health__subcmd__disk)
            opts="-t -h -V --limit --read-only --look --follow --interval --response-timeout --retries --k-of-n --success-retries --fast-interval --down-time --valid-for --name --exit --for --table --schema --node --timeout --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --response-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --retries)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --k-of-n)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --success-retries)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fast-interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --down-time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --valid-for)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --exit)
                    COMPREPLY=($(compgen -W "nagios ocf" -- "${cur}"))
                    return 0
                    ;;
                --for)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --node)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        health__subcmd__dns)
            opts="-t -h -V --server --type --expect --dev --source --follow --interval --response-timeout --retries --k-of-n --success-retries --fast-interval --down-time --valid-for --name --exit --for --table --schema --node --timeout --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --server)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --type)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --expect)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --dev)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --source)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --response-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --retries)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --k-of-n)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --success-retries)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fast-interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --down-time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --valid-for)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --exit)
                    COMPREPLY=($(compgen -W "nagios ocf" -- "${cur}"))
                    return 0
                    ;;
                --for)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --node)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        health__subcmd__exec)
            opts="-t -h -V --nagios --follow --interval --response-timeout --retries --k-of-n --success-retries --fast-interval --down-time --valid-for --name --exit --for --table --schema --node --timeout --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --response-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --retries)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --k-of-n)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --success-retries)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fast-interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --down-time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --valid-for)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --exit)
                    COMPREPLY=($(compgen -W "nagios ocf" -- "${cur}"))
                    return 0
                    ;;
                --for)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --node)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        health__subcmd__http)
            opts="-t -h -V --expect-status --match --connect --ca --dev --source --follow --interval --response-timeout --retries --k-of-n --success-retries --fast-interval --down-time --valid-for --name --exit --for --table --schema --node --timeout --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --expect-status)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --match)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connect)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ca)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --dev)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --source)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --response-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --retries)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --k-of-n)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --success-retries)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fast-interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --down-time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --valid-for)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --exit)
                    COMPREPLY=($(compgen -W "nagios ocf" -- "${cur}"))
                    return 0
                    ;;
                --for)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --node)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        health__subcmd__link)
            opts="-t -h -V --follow --interval --response-timeout --retries --k-of-n --success-retries --fast-interval --down-time --valid-for --name --exit --for --table --schema --node --timeout --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --response-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --retries)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --k-of-n)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --success-retries)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fast-interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --down-time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --valid-for)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --exit)
                    COMPREPLY=($(compgen -W "nagios ocf" -- "${cur}"))
                    return 0
                    ;;
                --for)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --node)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        health__subcmd__load)
            opts="-t -h -V --limit --over --follow --interval --response-timeout --retries --k-of-n --success-retries --fast-interval --down-time --valid-for --name --exit --for --table --schema --node --timeout --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --over)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --response-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --retries)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --k-of-n)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --success-retries)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fast-interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --down-time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --valid-for)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --exit)
                    COMPREPLY=($(compgen -W "nagios ocf" -- "${cur}"))
                    return 0
                    ;;
                --for)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --node)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        health__subcmd__memory)
            opts="-t -h -V --limit --follow --interval --response-timeout --retries --k-of-n --success-retries --fast-interval --down-time --valid-for --name --exit --for --table --schema --node --timeout --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --response-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --retries)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --k-of-n)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --success-retries)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fast-interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --down-time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --valid-for)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --exit)
                    COMPREPLY=($(compgen -W "nagios ocf" -- "${cur}"))
                    return 0
                    ;;
                --for)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --node)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        health__subcmd__ping)
            opts="-t -h -V --count --echo-interval --max-loss --dev --source --follow --interval --response-timeout --retries --k-of-n --success-retries --fast-interval --down-time --valid-for --name --exit --for --table --schema --node --timeout --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --count)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --echo-interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-loss)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --dev)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --source)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --response-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --retries)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --k-of-n)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --success-retries)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fast-interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --down-time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --valid-for)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --exit)
                    COMPREPLY=($(compgen -W "nagios ocf" -- "${cur}"))
                    return 0
                    ;;
                --for)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --node)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        health__subcmd__process)
            opts="-t -h -V --pidfile --follow --interval --response-timeout --retries --k-of-n --success-retries --fast-interval --down-time --valid-for --name --exit --for --table --schema --node --timeout --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --pidfile)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --response-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --retries)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --k-of-n)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --success-retries)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fast-interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --down-time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --valid-for)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --exit)
                    COMPREPLY=($(compgen -W "nagios ocf" -- "${cur}"))
                    return 0
                    ;;
                --for)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --node)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        health__subcmd__score)
            opts="-t -h -V --policy --base --unknown --expect --settle --standby --brief --max-skew --state --follow --renew --for --pass --exit-zero --table --schema --node --timeout --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --policy)
                    COMPREPLY=($(compgen -W "none all one progressive" -- "${cur}"))
                    return 0
                    ;;
                --base)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --unknown)
                    COMPREPLY=($(compgen -W "hold down up" -- "${cur}"))
                    return 0
                    ;;
                --expect)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --settle)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --standby)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-skew)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --state)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --renew)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --for)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --node)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        health__subcmd__tcp)
            opts="-t -h -V --dev --source --follow --interval --response-timeout --retries --k-of-n --success-retries --fast-interval --down-time --valid-for --name --exit --for --table --schema --node --timeout --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --dev)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --source)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --response-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --retries)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --k-of-n)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --success-retries)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fast-interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --down-time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --valid-for)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --exit)
                    COMPREPLY=($(compgen -W "nagios ocf" -- "${cur}"))
                    return 0
                    ;;
                --for)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --node)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
    esac
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _health -o nosort -o bashdefault -o default health
else
    complete -F _health -o bashdefault -o default health
fi
