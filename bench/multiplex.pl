#!/usr/bin/perl
# The daemon that `weir events` is measured beside: IO::Multiplex takes lines at a Unix socket, and gives each to the
# next of a number of workers, which count them.
#   multiplex.pl SOCKET WORKERS
use strict;
use warnings;
use IO::Multiplex;
use IO::Socket::UNIX;
use Socket;

my ($path, $count) = @ARGV;
my @workers;
for (1 .. $count) {
    socketpair(my $ours, my $theirs, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die "socketpair: $!";
    if (!fork) {
        close $_ for $ours, @workers;
        open STDIN, '<&', $theirs;
        exec 'wc', '-l';
    }
    close $theirs;
    push @workers, $ours;
}
my $listener = IO::Socket::UNIX->new(Local => $path, Listen => 4096) or die "listen: $!";
my $mux = IO::Multiplex->new;
$mux->listen($listener);
$mux->add($_) for @workers;
$mux->set_callback_object(__PACKAGE__);
my $next = 0;

sub mux_input {
    my (undef, $mux, undef, $buffer) = @_;
    while ($$buffer =~ s/^(.*?\n)//) {
        $mux->write($workers[$next], $1);
        $next = ($next + 1) % @workers;
    }
}

$mux->loop;
