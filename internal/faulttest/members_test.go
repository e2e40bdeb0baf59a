package faulttest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// etcd is a look at etcd from outside of the product.
func (w *world) etcd(ctx context.Context) ([]string, error) {
	cli, err := w.fleet.Etcd("cp-1")
	if err != nil {
		return nil, err
	}
	defer func() { _ = cli.Close() }() // it only reads
	list, err := cli.MemberList(ctx)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(list.Members))
	for _, m := range list.Members {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return names, nil
}

// members waits until etcd has so many.
func (w *world) members(want int) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("etcd has %d members", want), func(ctx context.Context) error {
		names, err := w.etcd(ctx)
		if err == nil && len(names) != want {
			return fmt.Errorf("they are %q", names)
		}
		return err
	})
}

// etcdDoes has cp-1's etcd do something behind the product's back, again until it does.
func (w *world) etcdDoes(what string, do func(context.Context, *clientv3.Client) error) {
	w.t.Helper()
	w.eventually(what, func(ctx context.Context) error {
		cli, err := w.fleet.Etcd("cp-1")
		if err != nil {
			return err
		}
		defer func() { _ = cli.Close() }() // the answer to the write came
		return do(ctx, cli)
	})
}

// throwOut removes a member by its name, which is empty for one that never started.
func (w *world) throwOut(machine string) {
	w.t.Helper()
	name := ""
	if machine != "" {
		name = hostname(machine)
	}
	w.etcdDoes(fmt.Sprintf("member %q is thrown out of etcd", name), func(ctx context.Context, cli *clientv3.Client) error {
		list, err := cli.MemberList(ctx)
		if err != nil {
			return err
		}
		for _, m := range list.Members {
			if m.Name == name {
				_, err := cli.MemberRemove(ctx, m.ID)
				return err
			}
		}
		return errors.New("it is no member")
	})
}

// addStranger adds a voter that never starts, as somebody does who joins a machine by hand.
func (w *world) addStranger() {
	w.t.Helper()
	w.etcdDoes("a stranger is added to etcd", func(ctx context.Context, cli *clientv3.Client) error {
		_, err := cli.MemberAdd(ctx, []string{"https://192.0.2.99:2380"})
		return err
	})
}

// alarm raises or disarms the alarm of cp-2 that there is no space left.
func (w *world) alarm(action etcdserverpb.AlarmRequest_AlarmAction) {
	w.t.Helper()
	w.etcdDoes(fmt.Sprintf("the alarm is %s", action), func(ctx context.Context, cli *clientv3.Client) error {
		list, err := cli.MemberList(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(list.Members, func(m *etcdserverpb.Member) bool { return m.Name == hostname("cp-2") })
		if i < 0 {
			return errors.New("cp-2 is no member")
		}
		_, err = etcdserverpb.NewMaintenanceClient(cli.ActiveConnection()).Alarm(ctx, &etcdserverpb.AlarmRequest{
			Action: action, MemberID: list.Members[i].ID, Alarm: etcdserverpb.AlarmType_NOSPACE,
		})
		return err
	})
}
