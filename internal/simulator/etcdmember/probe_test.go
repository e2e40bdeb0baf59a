package etcdmember

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestProbe(t *testing.T) {
	l := newLab(t)
	a := l.bootstrapped("a")
	l.joined("b")
	cli := a.client()
	w := cli.Watch(context.Background(), "k")
	cli.Put(context.Background(), "k", "v")
	<-w
	begun := time.Now()
	a.Stop()
	t.Log("stop", time.Since(begun))
	for range 8 {
		out, _ := exec.Command("ss", "-tn", "state", "established").CombinedOutput()
		n, m := 0, 0
		for _, s := range strings.Split(string(out), "\n") {
			if strings.Contains(s, " "+a.address.String()+":2379") { n++ }
			if strings.Contains(s, " "+a.address.String()+":2380") { m++ }
		}
		t.Log(time.Since(begun), "client", n, "peer", m)
		time.Sleep(time.Second)
	}
}
