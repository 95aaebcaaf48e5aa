# failures.awk prints what is needed of the output of go test that failed, in at most 40 lines: each
# failed test (up to 4), the seeds that its log names, the end of its log, and the command that
# repeats it. The command changes to the folder of the package, which may be of another module.
#
# go test prints the log of a package before the line that says "FAIL" and the package's name. In
# it, the log of a test follows its "--- FAIL" line, and a data race comes before. A panic comes
# behind it, or before if it was in a goroutine of no test.

function short(s) { return length(s) > 180 ? substr(s, 1, 177) "..." : s }

function folder(p) { sub(/^runlog\/?/, "./", p); return p }

function finish() {
	if (name == "" || shown >= 4) return
	tests[++shown] = name
	body = ""
	from = kept > 5 ? kept - 4 : 1
	for (i = from; i <= kept; i++) body = body "    " short(keep[i]) "\n"
	bodies[shown] = seeds body; envs[shown] = env
	name = ""; kept = 0; seeds = ""; env = ""; seedLines = 0
}

function keepLine(s) {
	if (match(s, /TEST_RUNLOG_SEED=[0-9]+/)) env = substr(s, RSTART, RLENGTH) " "
	if (s ~ /[Ss]eed|rapid\.failfile/ && seedLines < 2) { seeds = seeds "    " short(s) "\n"; seedLines++; return }
	keep[++kept] = s
}

# panicLine keeps of a panic which goroutines it names, and where in the product they were.
function panicLine(s) {
	tabbed = sub(/^\t+/, "", s)
	if (place && tabbed || s ~ /^goroutine / || s ~ /(^|created by )runlog[\/.]/ && s !~ /^runlog\/testbed\/bubble\./) {
		if (kept < 5) keep[++kept] = s
		place = s ~ /^(created by )?runlog[\/.]/
	} else place = 0
}

/(^|[ \t])go test .*-race/ { flags = " -race -short"; next } # make shows the command.
/^panic: test timed out/ { timedOut = 1; keepLine($0); next }
timedOut && /^\t\tTest[A-Za-z0-9_\/]+ \(/ { finish(); sub(/^\t\t/, ""); name = $1; keepLine("still running: " $0); next }
timedOut && /^goroutine / { timedOut = 0 }
/^WARNING: DATA RACE/ { if (name == "") loose = $0 }
/^panic: |^fatal error: / && !panicked { panicked = 1; kept = 0; if (name == "") loose = $0; else keep[++kept] = $0; next }
/^\*\*\* Test I\/O incomplete/ { loose = "a test has left a process that holds its output"; next }
panicked && !/^FAIL/ { panicLine($0); next }
/^--- FAIL: / { finish(); name = $3; kept = 0; if (loose != "") { keepLine(loose); loose = "" } next }
/^    +--- FAIL: / && name != "" { sub(/^ +--- FAIL: /, ""); name = $1; next }
/^(ok|\?)[ \t]/ { kept = 0; next }
/^FAIL\t/ {
	package = $2
	if (name == "" && loose != "") { name = "(" loose ")" }
	finish()
	for (i = done + 1; i <= shown; i++) {
		test = tests[i]; gsub(/\//, "$/^", test)
		if (test ~ /^\(/) test = ""; else test = " -run '^" test "$'"
		out[i] = "FAILED " tests[i] " in " folder(package) "\n" bodies[i] "    repeat it: " envs[i] "go -C " folder(package) " test" flags " -count=1" test "\n"
	}
	if (shown == done && / \[build failed\]| \[setup failed\]/) { shown++; out[shown] = "FAILED to build " folder(package) ": go -C " folder(package) " vet\n" }
	failed++; done = shown; loose = ""; panicked = 0; next
}
name != "" && !/^(===|---|PASS|FAIL$|exit status|coverage:|goroutine |$)/ { keepLine($0) }

END {
	finish()
	for (i = 1; i <= done; i++) printf "%s", out[i]
	if (failed > 1) printf "%d packages failed\n", failed
}
