package etcdmember

import (
	"errors"
	"fmt"
	"math/rand/v2"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// dial makes a client of the given endpoints. As in Talos its calls wait for one of them to answer until the caller's
// deadline: with none up they hang, and never say "unavailable".
func (s *Service) dial(endpoints []string) (*clientv3.Client, error) {
	if len(endpoints) == 0 {
		return nil, errors.New("no controlplane endpoints discovered yet")
	}
	cli, err := clientv3.New(clientv3.Config{Endpoints: endpoints, TLS: s.pki.client, Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("error building etcd client: %w", err)
	}
	return cli, nil
}

func (s *Service) dialLocal() (*clientv3.Client, error) {
	return s.dial([]string{clientURL(s.o.Address)})
}

// dialCluster makes a client of all control planes that discovery knows. Which of them answers is left to chance.
func (s *Service) dialCluster() (*clientv3.Client, error) { return s.dial(s.endpoints(true)) }

// dialOthers makes a client of all other control planes.
func (s *Service) dialOthers() (*clientv3.Client, error) { return s.dial(s.endpoints(false)) }

func (s *Service) endpoints(self bool) []string {
	var out []string
	for _, a := range s.o.Endpoints() {
		if self || a != s.o.Address {
			out = append(out, clientURL(a))
		}
	}
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
