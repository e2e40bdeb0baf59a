package modelcheck

import (
	"fmt"
	"strings"
)

// A Result is what one run of the check found. The test writes it as JSON where -model.out says.
type Result struct {
	// Rows are the configurations that were explored whole, with the rules as the product keeps them.
	Rows []Row `json:"rows"`
	// Mutants are the rules that were broken on purpose, each in turn.
	Mutants []Mutant `json:"mutants"`
	// Rules that every move of every row was held against: invariants of design.md 7, sections of design.md, progress.
	Rules []string `json:"rules"`
}

// A Row is one configuration.
type Row struct {
	Config string `json:"config"`
	// States are worlds that differ in more than the order of machines; Transitions lead from one to another; Questions are
	// those that were put to the decide packages.
	States      int     `json:"states"`
	Transitions int     `json:"transitions"`
	Questions   int     `json:"questions"`
	Seconds     float64 `json:"seconds"`
	// Violation is the shortest story that breaks a rule, or empty.
	Violation string `json:"violation,omitempty"`
}

// A Mutant is one rule that was broken on purpose.
type Mutant struct {
	Name string `json:"name"`
	// Rule that the mutant was seen to break, or empty if nothing was seen; Story is the shortest one that breaks it.
	Rule  string   `json:"rule,omitempty"`
	Story []string `json:"story,omitempty"`
}

// Violations counts the rows that break a rule.
func (r Result) Violations() int {
	n := 0
	for _, row := range r.Rows {
		if row.Violation != "" {
			n++
		}
	}
	return n
}

// Found counts the mutants that were seen.
func (r Result) Found() int {
	n := 0
	for _, m := range r.Mutants {
		if m.Rule != "" {
			n++
		}
	}
	return n
}

// Table is the result for people to read.
func (r Result) Table() string {
	var b strings.Builder
	var all Row
	fmt.Fprintf(&b, "%-44s %10s %12s %10s %8s  %s\n", "configuration", "states", "transitions", "decisions", "seconds", "violations")
	for _, row := range r.Rows {
		fmt.Fprintf(&b, "%-44s %10d %12d %10d %8.1f  %s\n", row.Config, row.States, row.Transitions, row.Questions, row.Seconds, none(row.Violation))
		all.States, all.Transitions, all.Questions, all.Seconds = all.States+row.States, all.Transitions+row.Transitions, all.Questions+row.Questions, all.Seconds+row.Seconds
	}
	fmt.Fprintf(&b, "%-44s %10d %12d %10d %8.1f  %d\n", "all", all.States, all.Transitions, all.Questions, all.Seconds, r.Violations())
	fmt.Fprintf(&b, "rules: %s\n", strings.Join(r.Rules, ", "))
	fmt.Fprintf(&b, "\n%-52s %-9s %s\n", "broken on purpose", "seen as", "moves")
	for _, m := range r.Mutants {
		fmt.Fprintf(&b, "%-52s %-9s %5d\n", m.Name, none(m.Rule), len(m.Story))
	}
	fmt.Fprintf(&b, "mutants found: %d of %d\n", r.Found(), len(r.Mutants))
	return b.String()
}

func none(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
