"""The first word of a docstring: an imperative, or something else."""

from __future__ import annotations

import re

VERBS = """
abandon abort accept acknowledge acquire activate adapt add adjust admit adopt advance allocate
allow alter announce answer append apply arrange ask assemble assert assign associate attach
attribute authenticate authorize await back balance base begin bind block borrow bound break
bring bucket buffer build bump cache calculate call cancel carry cast catch change charge check
choose claim classify clean clear close collect combine commit compact compare compile complete
compose compress compute concatenate configure confirm connect construct consume continue
convert copy correlate count cover create cross cut deactivate deal decide declare decline
decode decompress decrypt defer define delay delete deliver demand deny derive describe
deserialize destroy detach detect determine disable discard disconnect dismiss dispatch
distribute divide do double drain draw drop dump duplicate elect emit empty enable encode
encrypt end enforce enlarge ensure enter enumerate escape estimate evaluate evict examine
exchange execute exit expand expect expire explain export expose express extend extract fail
feed fence fetch fill filter find finish fit fix flip flush follow forbid force forget fork
format forward free freeze fulfil gather generate get give go grant group grow guard guess halt
halve hand handle hash have hear help hide hold identify ignore implement import include
increase increment indent index indicate infer inflict inform inherit initialize inject insert
inspect install interpret interrupt intersect invalidate invoke issue iterate join judge keep
kill label latch launch lay lead learn leave lend let lift limit link list listen load locate
lock log look loop lose lower make map mark match measure meet merge migrate mirror modify move
multiply name negotiate normalize note notice notify number obey observe obtain offer omit open
order overwrite own pack pad park parse partition pass patch pause peek perform permit persist
pick pin place plan play point poll pop populate postpone precompute predict prefer prepare
prevent print process produce promise promote propose protect prove provide publish pull purge
push put query queue quote raise rank reach read rebalance rebuild recall receive reclaim
recognise recognize recompute reconcile reconnect record recover redirect reduce refer refill
reflect refresh refuse register reject rejoin relax release reload remember remove rename
render renew reopen repeat replace replay replicate reply report represent request require
rerun reserve reset resize resolve respond restart restore restrict resume retain retrieve
retry return reuse reverse revert revoke rewind rewrite roll rotate round route run sample
satisfy save say scale scan schedule score script search see seek select send separate
serialize serve set settle shift shorten show shrink shuffle shut sign signal simulate skip
sleep slice slow sort spare specify spend spin split spread stall stamp stand start state step
stop store stream strip submit subscribe substitute subtract suggest sum summarize supply
suppose suspend swap switch sync synchronize take talk teach tell terminate test throttle throw
tick time tolerate total touch trace track transfer transform transition translate transmit
traverse treat trim truncate trust try turn unassign unblock undo unlock unpack unpause
unregister unsubscribe unwrap update upgrade use validate verify view visit wait wake walk warn
watch weigh widen withdraw withhold work wrap write yield
"""
# Nouns as often as verbs: a verb only if what follows is not what follows a noun.
NOUNS_TOO = """
answer balance block bound buffer cache change charge claim cover cut delay demand double end
exchange feed fit group guess hash help index label lead limit link list match measure mirror
name number offer order partition place plan play point process promise query queue quote
rank record request result round sample score set sign signal slice sort stamp state step
stream sum test time total touch trace track trust turn use view
"""
AFTER_A_NOUN = "of that which is are was were has have who by in when"

IMPERATIVES = frozenset(VERBS.split())
AMBIGUOUS = frozenset(NOUNS_TOO.split())
NOT_AFTER_VERBS = frozenset(AFTER_A_NOUN.split())


def begins_with_a_verb(docstring: str) -> bool:
    """Say whether the first word of a docstring is an imperative."""
    words = re.findall(r"[^\s,.:;]+", docstring)
    if not words or not re.fullmatch(r"[A-Z][a-z]+(?:-[a-z]+)?", words[0]):
        return False
    first = words[0].lower().removeprefix("re-").removeprefix("un-")
    if first in AMBIGUOUS and len(words) > 1 and words[1].lower() in NOT_AFTER_VERBS:
        return False
    return first in IMPERATIVES
