# Sending records to a trusted curator: the end of section 6 of the page.
use v5.36;
use List::Util qw(max min);

our ($limits, $opt_in, $state);

sub look_opting_in ($now) {
    my ($body, $failure) = fetch("/v1/epochs", $now, "try later");
    return $failure if $failure;
    my $document = eval { utf8::decode($body) ? parse($body) : undef };
    return "head list refused" if ref $document ne "HASH" || !exists $document->{collecting};
    my $c = $document->{collecting} // return "nothing new";
    return "head list refused" if ref $c ne "HASH";
    my ($start, $end, $until) = @$c{qw(window_start_s window_end_s optin_until_s)};
    my ($epoch, $records) = @$c{qw(epoch records_per_user)};
    return "head list refused" if !wholes(0, $start, $end, $until, $epoch) || !wholes(1, $records);
    return "head list refused" if $start >= $end || $end > $until;
    my $entry = $state->{entries}[-1] // { epoch => -1 };
    return ("nothing new", $epoch)
      if $entry->{epoch} == $epoch && $entry->{window_start_s} == $start;
    my $allowed = window_is_allowed($c, $now) && $records <= $limits->{max_optin_records}
      && $until <= $end + ($end - $start)
      && $start <= $now + $limits->{max_clock_skew_s} && $now < $until;
    return ("head list refused", $epoch) if !$allowed;
    my ($result) = check_entry(optin_entry($c, $now), @{ $state->{entries} });
    return ($result, $epoch) if $result ne "allowed";
    my $quarter = $end - int(($end - $start) / 4);
    return ("nothing new", $epoch) if $now < $quarter && $end > $now + $limits->{max_wait_s};
    my ($from, $to) = (max($now, $quarter), min($end, $now + $limits->{max_wait_s}));
    my $at = $to > $from ? $from + below($to - $from) : $now;
    $state->{planned} = { %$c, mode => "opt in", id => "", at => $at, until => $until };
    return;
}

sub optin_entry ($c, $now) {
    my %free = (subject => "", epsilon => 0, delta => 0);
    my ($start, $end) = @$c{qw(window_start_s window_end_s)};
    my @window = (window_start_s => $start, window_end_s => min($end, max($start, $now) + 1));
    return { %free, mode => "opt in", epoch => $c->{epoch}, at_s => $now, @window };
}

sub opt_in ($now, $c) {
    my $entry = optin_entry($c, $now);
    return ("try later", $c->{epoch}) if !defined $opt_in->{token};
    my ($result) = check_entry($entry, @{ $state->{entries} });
    return ($result, $c->{epoch}) if $result ne "allowed";
    my $from = max($c->{window_start_s}, $state->{forgotten_s});
    my @held = in_window($c);
    for my $i (0 .. $#held) {
        my $other = $i + below(@held - $i);
        @held[$i, $other] = @held[$other, $i];
    }
    my %seen;
    @held = grep { !$seen{ canonical($_) }++ } @held;
    @held = @held ? @held[0 .. min($#held, $c->{records_per_user} - 1)] : [undef, undef];
    my %who = (epoch => $c->{epoch}, user_id => $opt_in->{user_id});
    my @entries = map { { %who, slot => $_ } } 0 .. $#held;
    @{ $entries[$_] }{qw(query url)} = @{ $held[$_] } for 0 .. $#held;
    my $until = min($c->{until}, $from + $limits->{keep_records_s});
    my $forgotten = min($c->{window_end_s}, $now + 1);
    return spend($entry, "/v1/optin-records", canonical(\@entries), $until, $forgotten);
}
1;
