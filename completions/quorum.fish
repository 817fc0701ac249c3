complete -c quorum -l members -d 'All members, whether they are there or not; a majority is more than half of these' -r
complete -c quorum -l window -d 'A report that is older counts no more' -r
complete -c quorum -l tie-breaker -d 'What settles a split into two halves' -r -f -a "fence\t'A member that is proven off is no longer counted'"
complete -c quorum -l veto -d 'Not quorate while the verdict about SUBJECT is down, as health ping has it; while there is none, nothing is taken and nothing given up' -r
complete -c quorum -l wait-for-all -d 'Not quorate before every member was heard once since this machine started, or is proven off [default: yes for two members]' -r -f -a "yes\t''
no\t''"
complete -c quorum -l max-skew -d 'A report whose time is further ahead of this clock is of unknown age; without --follow only' -r
complete -c quorum -l state -d 'Remember from run to run' -r -F
complete -c quorum -l renew -d 'Repeat the conclusion at least every D, for as long as what it rests on holds' -r
complete -c quorum -l for -d 'End after D with the status of the last conclusion' -r
complete -c quorum -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c quorum -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c quorum -l tell -d 'Say each change for this side on standard error too, for a log'
complete -c quorum -l follow -d 'Conclude after each step of the input, and print what changed'
complete -c quorum -l pass -d 'Copy each line of input first'
complete -c quorum -l exit-zero -d 'End with status 0 whatever was concluded'
complete -c quorum -s t -l table -d 'Print a table for a person instead of JSON'
complete -c quorum -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c quorum -s h -l help -d 'Print help (see more with \'--help\')'
complete -c quorum -s V -l version -d 'Print version'
