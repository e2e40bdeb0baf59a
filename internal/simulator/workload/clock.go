package workload

import "time"

// A clock has the waits of this cluster. They are Kubernetes's defaults divided by the scale, but never so short that a busy
// machine misses them.
type clock struct{ scale float64 }

func newClock(scale float64) clock {
	if scale <= 0 {
		scale = 1
	}
	return clock{scale: scale}
}

const (
	notReadyAfter    = 50 * time.Second  // node-monitor-grace-period
	shortestNotReady = 5 * time.Second   // below this, a slow API call looks like a dead node
	nodeMonitor      = 5 * time.Second   // node-monitor-period
	shortestMonitor  = time.Second / 2   // each round reads all nodes and leases
	evictedAfter     = 300 * time.Second // the tolerations that every pod gets
	shortestEviction = 15 * time.Second  // a node that was NotReady for a moment keeps its pods
	promptStop       = time.Second       // how long a well-behaved pod takes to end after SIGTERM
)

// notReady is the silence after which a node is NotReady.
func (c clock) notReady() time.Duration { return max(c.scaled(notReadyAfter), shortestNotReady) }

// heartbeat is how often a kubelet renews its lease: as in Kubernetes, a node may miss four in a row.
func (c clock) heartbeat() time.Duration { return c.notReady() / 5 }

func (c clock) monitor() time.Duration { return max(c.scaled(nodeMonitor), shortestMonitor) }

// tolerationSeconds is how long pods stay on a node that is NotReady. Kubernetes counts it in whole seconds.
func (c clock) tolerationSeconds() int {
	return int(max(c.scaled(evictedAfter), shortestEviction) / time.Second)
}

func (c clock) scaled(d time.Duration) time.Duration { return time.Duration(float64(d) / c.scale) }
