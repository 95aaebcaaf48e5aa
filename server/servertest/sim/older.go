package sim

import "time"

// olderCopy runs OlderCopy. The nodes that are behind do not know what the others have acknowledged
// meanwhile, and could elect one of them with the vote of the older copy. The others do not reach
// the older copy, so that they cannot bring it up to date; it reaches them. Once it has stopped
// itself, the operator replaces it.
func (s *scenario) olderCopy() bool {
	w := s.world
	if !w.take(w.rotting) {
		return false
	}
	defer w.rotting.pass()
	victim, half := s.others[0], len(w.nodes)/2
	behind, ahead := s.others[1:1+half], append([]*node{s.leader}, s.others[1+half:]...)
	was, err := w.operator.member(victim.host)
	if err != nil || !w.allServe() || !victim.powerOff(nil, nil, killed) {
		return false
	}
	older := victim.disk.copied()
	victim.powerOn()
	if !s.await(w.allServe) {
		return false
	}
	for _, n := range behind {
		s.part(n, append(ahead, victim)...)
	}
	s.pause(time.Second, 4*time.Second)
	if !victim.powerOff(nil, nil, killed) {
		return false
	}
	for _, n := range ahead {
		w.net.RefuseFrom(n.host, victim.host)
	}
	for _, n := range behind {
		s.join(n, victim)
	}
	victim.mu.Lock()
	victim.disk = older
	victim.mu.Unlock()
	victim.older.Store(true)
	victim.powerOn()
	noticed := s.await(func() bool { return !victim.older.Load() })
	for _, n := range ahead {
		w.net.AdmitFrom(n.host, victim.host)
	}
	s.joinAll()
	if noticed {
		victim.lose()
		w.renew(victim, was)
	}
	return noticed
}
