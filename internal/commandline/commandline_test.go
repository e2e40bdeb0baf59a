package commandline

import (
	"io"
	"slices"
	"testing"
	"time"

	"github.com/alecthomas/kingpin/v2"
)

// TestNameFlags holds that an error names flag and value wherever the value comes from, and that flags are what they were.
func TestNameFlags(t *testing.T) {
	cases := map[string]struct {
		args []string
		env  string
		want string
	}{
		"Duration":        {args: []string{"--poll=soon", "work"}, want: `cannot read --poll="soon": time: invalid duration "soon"`},
		"FromEnvironment": {args: []string{"work"}, env: "later", want: `cannot read --poll="later": time: invalid duration "later"`},
		"OfACommand":      {args: []string{"work", "--seed", "x"}, want: `cannot read --seed="x": strconv.ParseUint: parsing "x": invalid syntax`},
		"Enum":            {args: []string{"work", "--job=none"}, want: `cannot read --job="none": enum value must be one of removal,reboot, got 'none'`},
		"Good":            {args: []string{"--poll=2m", "work", "--fast", "--no-slow", "--seed=7", "--job=removal", "--job=reboot"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.env != "" {
				t.Setenv("TEST_POLL", tc.env)
			}
			app := kingpin.New("test", "").Terminate(nil).UsageWriter(io.Discard).ErrorWriter(io.Discard)
			poll := app.Flag("poll", "").Envar("TEST_POLL").Default("1m").Duration()
			work := app.Command("work", "")
			fast, slow := work.Flag("fast", "").Bool(), work.Flag("slow", "").Default("true").Bool()
			seed := work.Flag("seed", "").Uint64()
			jobs := work.Flag("job", "").Enums("removal", "reboot")
			NameFlags(app)
			_, err := app.Parse(tc.args)
			if err != nil || tc.want != "" {
				if err == nil || err.Error() != tc.want {
					t.Errorf("got %v, want %s", err, tc.want)
				}
				return
			}
			if *poll != 2*time.Minute || !*fast || *slow || *seed != 7 || !slices.Equal(*jobs, []string{"removal", "reboot"}) {
				t.Errorf("got poll %s, fast %t, slow %t, seed %d, jobs %q", *poll, *fast, *slow, *seed, *jobs)
			}
		})
	}
}
