# Limits, budget, and when a device speaks: sections 5 and 6 of the page.
use v5.36;
no warnings qw(experimental::builtin surrogate nonchar non_unicode);
use Digest::SHA qw(sha256_hex);
use List::Util qw(all any first max min);
use Math::BigFloat;
use POSIX qw(floor);
use Time::Local qw(timegm_modern);

# ------------------------------------------------------------------------------- 5. budget

my %DEFAULTS = (
    max_answers => 4, max_cells_per_answer => 1024, max_cohorts => 366, min_window_s => 3600,
    max_window_s => 31 * 86400, max_head_list_bytes => 1 << 20, max_optin_records => 10,
    max_wait_s => 2 * 86400, max_clock_skew_s => 900, keep_records_s => 45 * 86400,
    max_record_bytes => 4 << 20,
);
our ($limits, $opt_in, $state);
sub limits_of ($step) { $limits = { %DEFAULTS, %{ $step->{limits} } } }

sub decimal ($x) { Math::BigFloat->new(float($x)) }

sub spent ($now, $kind, @entries) {
    my $sum = Math::BigFloat->new(0);
    $sum += decimal($_->{$kind}) for grep { $now < $_->{at_s} + $limits->{period_s} } @entries;
    return $sum;
}

sub has_room ($now, $entry, @entries) {
    return all {
        spent($now, $_, @entries) + decimal($entry->{$_}) <= decimal($limits->{"${_}_per_period"})
    } qw(epsilon delta);
}

sub check_entry ($entry, @entries) {    # outcome, and the second at which there is room
    my ($now, $last) = ($entry->{at_s}, $entries[-1]);
    return "clock wrong" if $last && $now < $last->{at_s};
    return "head list refused" if $last && $entry->{window_start_s} < $last->{window_end_s};
    return "allowed" if has_room($now, $entry, @entries);
    my @ends = sort { $a <=> $b } map { $_->{at_s} + $limits->{period_s} } @entries;
    return ("limit reached", first { $_ > $now && has_room($_, $entry, @entries) } @ends);
}

# ------------------------------------------------------------------------- 6. conversations

my ($folder, $last);

sub start ($step) {
    ($folder, $opt_in) = @$step{qw(folder opt_in)};
    if ($step->{state} eq "lost") { unlink "$folder/state", "$folder/records" }
    if ($step->{state} eq "damaged") { truncate "$folder/state", (-s "$folder/state") - 1 }
    my ($hash, $text) = split /\n/, stored("state"), 2;
    $state = -e "$folder/marker" || -e "$folder/state" ? undef
      : { entries => [], cohorts => 1, place => 0, forgotten_s => 0 };
    $state = parse($text) if defined $text && $hash eq sha256_hex($text);
    $last = { failures => 0 };
    return undef;
}

sub stored ($name) {
    open my $file, "<:raw", "$folder/$name" or return "";
    local $/ = undef;
    return <$file>;
}

sub store ($name, $text) {    # durably, all or nothing
    utf8::encode($text);
    open my $file, ">:raw", "$folder/$name.new" or die;
    print $file $text;
    $file->flush && $file->sync && close $file or die;
    rename "$folder/$name.new", "$folder/$name" or die;
}

sub save { my $text = ascii(canonical($state)); store("state", sha256_hex($text) . "\n$text") }

sub records { map { parse($_) } split /\n/, stored("records") }
sub keep (@records) { store("records", join "", map { ascii(canonical($_)) . "\n" } @records) }

sub record ($step) {
    my $record = normalise(@$step{qw(query url)}) // return "text refused";
    my @records = (records(), [$step->{now_s}, @$record]);
    my $most = $limits->{max_record_bytes};
    splice @records, 0, @records / 2 while bytes(canonical(\@records)) > $most;
    keep(@records);
    return "kept";
}

sub forget ($step) {
    keep();
    delete $state->{bytes} if $state && $state->{bytes} && $state->{bytes}{mode} eq "opt in";
    $state ? save() : store("state", "");
    return undef;
}

sub forget_before ($second) {
    $state->{forgotten_s} = max($state->{forgotten_s}, $second);
    keep(grep { $_->[0] >= $state->{forgotten_s} } records());
    return save();
}

sub report ($step) {
    my ($now, $due) = ($step->{now_s}, $step->{do} eq "report now");
    return { code => "state unreadable", epoch => undef } if !$state;
    my $pausing = $last->{outcome} && $now >= $last->{now_s}
      && $now < $last->{outcome}{next_call_at_s};
    return $last->{outcome} if $pausing && !$due;
    store("marker", ""), save() if !-e "$folder/marker";
    my ($what, $epoch, $at, $free) = call($now, $due);
    my $P = min(3600, $limits->{min_window_s});
    my ($failed, $waits) = ($what eq "try later", $what eq "waiting");
    my $failures = $waits ? $last->{failures} : $failed ? $last->{failures} + 1 : 0;
    my $pause = $failed ? min($P, max(1, int($P / 120)) * 2**($failures - 1)) : $P;
    $pause = max(1, $pause - below(int($pause / 2) + 1)) if !$waits;
    my $after = $failed && $last->{retry_after} // "";
    $after = $after =~ /^\d{1,9}\z/a ? min(3600, $after) : 0;
    my $again = $waits ? $at : $now + max($pause, $after);
    my $outcome = { code => $what, epoch => $epoch, next_call_at_s => $again, free_at_s => $free };
    $last = { outcome => $outcome, now_s => $now, failures => $failures };
    return $outcome;
}

sub call ($now, $due) {
    forget_before($now - $limits->{keep_records_s});
    my $mode = $opt_in ? "opt in" : "report";
    delete $state->{bytes} if $state->{bytes} && $state->{bytes}{mode} eq "opt in" && !$opt_in;
    return post($now) if $state->{bytes};
    my $planned = $state->{planned};
    if (!$planned || $planned->{mode} ne $mode || $now >= $planned->{until}) {
        my @outcome = $opt_in ? look_opting_in($now) : look($now);
        return @outcome if @outcome;
        save();
    }
    $planned = $state->{planned};
    return ("waiting", $planned->{epoch}, $planned->{at}) if $now < $planned->{at} && !$due;
    return $opt_in ? opt_in($now, $planned) : act($now, $planned);
}

sub fetch ($path, $now, $none) {    # the body, or an outcome
    my $response = request("GET", $path, {}, undef);
    $last->{retry_after} = $response->{headers}{"retry-after"};
    return (undef, $none) if ($response->{status} // 0) == 404;
    return (undef, "try later") if ($response->{status} // 0) != 200;
    my $date = seconds_of($response->{headers}{date} // "") // $now;
    return (undef, "clock wrong") if abs($date - $now) > $limits->{max_clock_skew_s};
    utf8::encode(my $body = $response->{body});
    return length $body > $limits->{max_head_list_bytes} ? (undef, "head list refused") : $body;
}

sub seconds_of ($date) {    # undefined: it is no date
    my ($day, $name, $year, @time) =
      $date =~ /^\w{3}, (\d\d) (\w{3}) (\d{4}) (\d\d):(\d\d):(\d\d) GMT\z/a or return undef;
    my $month = index "JanFebMarAprMayJunJulAugSepOctNovDec", $name;
    return $month % 3 ? undef : eval { timegm_modern(reverse(@time), $day, $month / 3, $year) };
}

sub within_limits ($list, $now) {
    my $r = $list->{randomizer};
    my ($start, $end, $until) = @$list{qw(window_start_s window_end_s reports_until_s)};
    my $mechanism = $r->{epsilon} <= $limits->{epsilon_per_report}
      && $r->{delta} <= $limits->{delta_per_report} && $r->{answers} <= $limits->{max_answers}
      && $r->{max_cells_per_answer} <= $limits->{max_cells_per_answer};
    return $mechanism && $list->{cohorts} <= $limits->{max_cohorts} && $list->{normalisation} == 2
      && $until <= $end + 4 * ($end - $start) && $end <= $now + $limits->{max_clock_skew_s}
      && window_is_allowed($list, $now);
}

sub window_is_allowed ($epoch, $now) {
    my $length = $epoch->{window_end_s} - $epoch->{window_start_s};
    return $length >= $limits->{min_window_s} && $length <= $limits->{max_window_s}
      && $epoch->{epoch} <= floor($now / $limits->{min_window_s});
}

sub entry_for ($list, $now) {
    my %entry = (mode => "report", subject => $list->{id}, at_s => $now);
    @entry{qw(epsilon delta)} = @{ $list->{randomizer} }{qw(epsilon delta)};
    @entry{qw(epoch window_start_s window_end_s)} = @$list{qw(epoch window_start_s window_end_s)};
    return \%entry;
}

sub usable ($list) {    # the randomizer's sub, where everything about it is as the page demands
    my $r = $list->{randomizer};
    my ($w, $answer) = randomizer($r, $list->{listed});
    return if !$w || $w != $r->{cells_per_answer};
    return ($r->{name} eq "two-stage") == $list->{query_wildcards} ? $answer : undef;
}

sub look ($now) {
    my ($body, $failure) = fetch("/v1/head-lists/current", $now, "nothing new");
    return $failure if $failure;
    my $list = read_head_list($body) // return "head list refused";
    my ($epoch, $entry) = ($list->{epoch}, $state->{entries}[-1]);
    my ($start, $end, $until) = @$list{qw(window_start_s window_end_s reports_until_s)};
    return ("nothing new", $epoch) if $entry && ($entry->{subject} eq $list->{id}
        || $entry->{mode} eq "opt in" && $entry->{window_end_s} > $start);
    my ($result, $free) = check_entry(entry_for($list, $now), @{ $state->{entries} });
    return ($result, $epoch) if $result =~ /clock|refused/;
    return ("head list refused", $epoch) if !within_limits($list, $now);
    my $R = $list->{cohorts};
    @$state{qw(cohorts place)} = ($R, below($R)) if $R != $state->{cohorts};
    if ($list->{epoch} % $R != $state->{place} || !@{ $list->{listed} }) {
        forget_before($end);
        return ("nothing new", $epoch);
    }
    return ("nothing new", $epoch) if $now >= $until;
    return ("limit reached", $epoch, undef, $free) if $result eq "limit reached";
    return ("nothing new", $epoch) if $end <= $state->{forgotten_s};
    return ("head list refused", $epoch) if !usable($list);
    my ($from, $to) = (max($now, $end), min($until, $now + $limits->{max_wait_s}));
    my $last_one = $state->{planned} // { id => "" };
    my $missed = $last_one->{id} eq $list->{id} ? $last_one->{at} : undef;
    my $at = $missed // $from + below(max(1, floor(9 * ($to - $from) / 10)));
    my %planned = (mode => "report", id => $list->{id}, epoch => $epoch, at => $at, until => $to);
    $state->{planned} = \%planned;
    return;
}

sub act ($now, $planned) {
    my $epoch = $planned->{epoch};
    my ($body, $failure) = fetch("/v1/head-lists/$planned->{id}", $now, "try later");
    return ($failure, $epoch) if $failure;
    my $list = read_head_list($body);
    return ("head list refused", $epoch) if !$list || $list->{id} ne $planned->{id}
      || !within_limits($list, $now) || $now >= $list->{reports_until_s};
    my $answer = usable($list) or return ("head list refused", $epoch);
    my $entry = entry_for($list, $now);
    my ($result, $free) = check_entry($entry, @{ $state->{entries} });
    return ($result, $epoch, undef, $free) if $result ne "allowed";
    my @held = in_window($list);
    my $text = write_report($list->{id}, $list->{cells}, $list->{randomizer}, $answer, @held);
    return spend($entry, "/v1/reports", $text, $list->{reports_until_s}, $list->{window_end_s});
}

sub in_window ($epoch) {    # [query, url] of each record that may be sent
    my $start = max($epoch->{window_start_s}, $state->{forgotten_s});
    my @held = grep { $_->[0] >= $start && $_->[0] < $epoch->{window_end_s} } records();
    return map { [@$_[1, 2]] } @held;
}

sub spend ($entry, $path, $text, $until, $forgotten) {
    my $kept = $entry->{at_s} - max(366 * 86400, $limits->{period_s});
    $state->{entries} = [(grep { $_->{at_s} > $kept } @{ $state->{entries} }), $entry];
    my %bytes = (path => $path, text => $text, until => $until);
    $state->{bytes} = { %bytes, map { $_ => $entry->{$_} } qw(mode at_s epoch) };
    delete $state->{planned};
    save();
    forget_before($forgotten);
    return post($entry->{at_s});
}

sub post ($now) {
    my $bytes = $state->{bytes};
    my $done = sub ($what) { delete $state->{bytes}; save(); return ($what, $bytes->{epoch}) };
    return $done->("expired") if $now >= $bytes->{until};
    my %headers = ("content-type" => "application/json");
    if ($bytes->{mode} eq "opt in") {
        my $token = $opt_in->{token} // return ("try later", $bytes->{epoch});
        $headers{authorization} = "Bearer $token";
    }
    my $response = request("POST", $bytes->{path}, \%headers, $bytes->{text});
    my $what = verdict($response);
    return $done->($what) if $what;
    return $done->("expired") if $now - $bytes->{at_s} >= $limits->{max_wait_s};
    $last->{retry_after} = $response->{headers}{"retry-after"};
    return ("try later", $bytes->{epoch});
}

sub verdict ($response) {    # the outcome; undefined: the same bytes again
    my $status = $response->{status} // return undef;
    if ($status == 200 || $status == 202) {
        my $verdicts = eval { parse($response->{body})->{verdicts} };
        my $readable = ref $verdicts eq "ARRAY" && @$verdicts && all { is_verdict($_) } @$verdicts;
        return $status == 202 ? "sent" : undef if !$readable;
        return undef if any { $_->{status} eq "retry" } @$verdicts;
        return "sent" if any { $_->{status} eq "accepted" } @$verdicts;
        my $other = all { ($_->{reason} // "") eq "other_cohort" } @$verdicts;
        return $other ? "nothing new" : "refused by server";
    }
    my $problem = ($response->{headers}{"content-type"} // "") =~ m{^application/problem\+json};
    return $problem && $status =~ /^4(00|04|09|10|13|22)$/ ? "refused by server" : undef;
}

sub is_verdict ($x) {
    return ref $x eq "HASH" && ($x->{status} // "") =~ /^(accepted|refused|retry)\z/
      && ($x->{reason} // "none") =~ /^[a-z][a-z_]{0,39}\z/;
}

sub status ($step) {
    return { code => "state unreadable" } if !$state;
    my $now = $last->{now_s} // 0;
    my @entries = @{ $state->{entries} };
    my @spent = map { ("${_}_spent" => spent($now, $_, @entries)->numify) } qw(epsilon delta);
    my @counts = (records_held => 0 + (() = records()), windows_answered => 0 + @entries);
    return { code => "status", @spent, @counts };
}
1;
