#!/usr/bin/perl
# A device in Perl, written from docs/device-protocol.md alone: it shows that the page suffices.
#
#     python tests/vectors/device/play.py -- perl tests/third_client/client.pl
#
# It needs Perl 5.36 and its core modules. Here are the steps of play.py; lines.pl has its lines.
use v5.36;
use FindBin;
use Math::BigInt;
use Math::BigRat;
require "$FindBin::Bin/$_.pl" for qw(lines report device opting_in search);

my %built;
serve({
    "normalise" => sub ($step) { [map { normalise(@$_) } @{ $step->{texts} }] },
    "read head list" => sub ($step) {
        my $list = read_head_list(pack "H*", $step->{hex});
        return $list && { id => $list->{id}, cells => $list->{cells} };
    },
    "exponent" => sub ($step) {
        my $epsilon = exact(unpack "d>", pack "H*", $step->{bits});
        return exponential($epsilon / $step->{answers}) . "";
    },
    "width" => sub ($step) {
        my ($a, $d) = E(exact($step->{epsilon}))->parts;
        return width($step->{name}, $a, $d, @$step{qw(records cap listed_64ths)});
    },
    "answer" => sub ($step) {
        my @asked = @$step{qw(randomizer records)};
        my $answer = $built{ canonical(\@asked) } //= (randomizer(@asked))[1];
        return [sort { $a <=> $b } $answer->($step->{held})];
    },
    "write report" => sub ($step) {
        my ($r, $listed) = @$step{qw(randomizer records)};
        my $cells = cells($listed, $r->{name} eq "two-stage");
        my $answer = (randomizer($r, $listed))[1];
        return write_report($step->{head_list}, $cells, $r, $answer, @{ $step->{held} });
    },
    "check budget entry" => sub ($step) {
        limits_of($step);
        my ($entries, $entry) = @$step{qw(budget_entries entry)};
        my ($result, $free) = check_entry($entry, @$entries);
        my @spent = map { spent($entry->{at_s}, $_, @$entries)->numify } qw(epsilon delta);
        return { result => $result, free_at_s => $free, spent => \@spent };
    },
    "start" => sub ($step) { limits_of($step); start($step) },
    "record" => \&record,
    "report" => \&report,
    "report now" => \&report,
    "forget" => \&forget,
    "status" => \&status,
    "search" => \&found,
});
