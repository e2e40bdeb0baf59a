package prove

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/maesh/provider-ichor/internal/decide/modelcheck"
	"github.com/maesh/provider-ichor/internal/lab/crashsweep"
)

func events(lines ...string) string { return strings.Join(lines, "\n") }

func TestReadSuite(t *testing.T) {
	cases := map[string]struct {
		reason         string
		text           string
		passed, failed []string
		problem        string
	}{
		"Leaves": {
			reason: "Only what has no parts is counted.",
			text: events(`{"Action":"pass","Package":"a/b","Test":"TestX/One/AfterWrite1"}`, `{"Action":"pass","Package":"a/b","Test":"TestX/One/AfterWrite2"}`,
				`{"Action":"pass","Package":"a/b","Test":"TestX/One"}`, `{"Action":"pass","Package":"a/b","Test":"TestX"}`, `{"Action":"pass","Package":"a/b"}`),
			passed: []string{"TestX/One/AfterWrite1", "TestX/One/AfterWrite2"},
		},
		"Failure": {
			reason: "What failed says so.",
			text: events(`{"Action":"output","Package":"a","Test":"TestX/One","Output":"lost quorum\n"}`, `{"Action":"fail","Package":"a","Test":"TestX/One"}`,
				`{"Action":"fail","Package":"a","Test":"TestX"}`, `{"Action":"fail","Package":"a"}`),
			failed: []string{"TestX/One"}, problem: "lost quorum",
		},
		"Skipped": {
			reason: "What was skipped proves nothing.",
			text:   events(`{"Action":"skip","Package":"a","Test":"TestX"}`, `{"Action":"pass","Package":"a"}`), problem: "nothing was run",
		},
		"NoTests": {reason: "A name that fits nothing proves nothing.", text: `{"Action":"pass","Package":"a"}`, problem: "nothing was run"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := readSuite(strings.NewReader(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.passed, s.passed) + cmp.Diff(tc.failed, s.failed); diff != "" {
				t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
			}
			err = s.problem("it")
			if (err == nil) != (tc.problem == "") || err != nil && !strings.Contains(err.Error(), tc.problem) {
				t.Errorf("\n%s\nproblem: %v, want %q", tc.reason, err, tc.problem)
			}
		})
	}
	if _, err := readSuite(strings.NewReader("no JSON")); err == nil {
		t.Error("what is no JSON was read")
	}
}

// TestVerdict holds that a part that is missing is no proof.
func TestVerdict(t *testing.T) {
	one := suite{passed: []string{"TestX/One"}}
	good := modelcheck.Result{Rows: []modelcheck.Row{{Config: "3"}}, Mutants: []modelcheck.Mutant{{Name: "m", Rule: "I1"}}}
	swept := crashsweep.Report{Jobs: []crashsweep.JobReport{{Name: "removal", Variant: "plain", Points: 1}}}
	broken := crashsweep.Report{Jobs: []crashsweep.JobReport{{Name: "removal", Variant: "plain", Points: 1, Violations: []string{"I1"}}}}
	cases := map[string]struct {
		p    proof
		want string
	}{
		"NotSwept":  {p: proof{model: good, crashes: one, faults: one}, want: "nobody was killed"},
		"Broken":    {p: proof{model: good, crashes: one, faults: one, real: broken}, want: "removal, plain: I1"},
		"Holds":     {p: proof{model: good, crashes: one, faults: one, real: swept}},
		"NoModel":   {p: proof{crashes: one, faults: one}, want: "0 configurations"},
		"Violation": {p: proof{model: modelcheck.Result{Rows: []modelcheck.Row{{Config: "3", Violation: "I2"}}, Mutants: good.Mutants}, crashes: one, faults: one}, want: "3: I2"},
		"Mutant":    {p: proof{model: modelcheck.Result{Rows: good.Rows, Mutants: []modelcheck.Mutant{{Name: "m"}}}, crashes: one, faults: one}, want: "1 of 1 mutants"},
		"NoCrashes": {p: proof{model: good, faults: one}, want: "the crash sweep"},
		"NoFaults":  {p: proof{model: good, crashes: one}, want: "the faults"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := tc.p.verdict()
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("verdict: %v, want %q", err, tc.want)
			}
		})
	}
}

// TestReadTold reads the texts that there are, and refuses what is cut short.
func TestReadTold(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", filepath.FromSlash(told)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := readTold(string(text))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, c := range got {
		n += c
	}
	if want := strings.Count(string(text), "\n## "); n != want || n == 0 {
		t.Errorf("%d faults in %v, want %d", n, got, want)
	}
	for _, text := range []string{"## one\n\n## two\nReady=False X\n", "## one\n"} {
		if _, err := readTold(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}
