"""The first word of a docstring: an imperative, or something else."""

from __future__ import annotations

import re

VERBS = """
abandon abort accept acknowledge acquire activate adapt add adjust admit adopt advance allocate
allow alter announce answer append apply arrange ask assemble assert assign associate attach
attribute authenticate authorize await back base begin bind block bound break bring bucket
buffer build bump call cancel carry cast catch change charge check choose claim classify clean
clear close collect combine commit compact compare compile complete compose compress compute
concatenate configure confirm connect construct consume continue convert copy correlate count
create cut deactivate decide declare decline decode decompress decrypt defer define delay delete
deliver demand deny derive describe deserialize destroy detach detect determine disable discard
disconnect dismiss dispatch do drain draw drop dump duplicate elect emit empty enable encode
encrypt end enforce enlarge ensure enter enumerate escape estimate evaluate examine exchange
execute exit expand expect expire explain export expose express extend extract fail feed fence
fetch fill filter find finish fix flip flush follow forbid force forget fork format forward free
freeze fulfil gather generate get give go grant group grow guard guess halt halve hand handle
hash have help hide hold identify ignore implement import include increase increment indicate
infer inform inherit initialize inject insert inspect install interpret interrupt intersect
invalidate invoke issue iterate join judge keep kill label latch launch lead learn leave let
lift limit link list listen load locate lock log look loop lose lower make map mark match
measure meet merge migrate modify move multiply name negotiate normalize note notice notify
number observe obtain offer omit open order own pack pad parse partition pass pause peek perform
permit persist pick pin place plan play point poll pop populate postpone precompute predict
prefer prepare prevent print process produce promise promote prove provide publish pull purge
push put query queue raise reach read rebalance rebuild recall receive reclaim recognize
recompute reconcile reconnect record recover redirect reduce refer refill refresh refuse
register reject relax release reload remember remove rename render renew reopen repeat replace
replay reply report represent request require rerun reserve reset resize resolve respond restart
restore restrict resume retain retrieve retry return revert revoke rewind rewrite rotate round
route run sample satisfy save scale scan schedule score search see seek select send separate
serialize serve set settle shift show shrink shuffle shut sign signal simulate skip sleep slice
sort specify spend spin split spread stall stamp start state step stop store stream strip submit
subscribe subtract sum summarize supply suspend swap switch sync synchronize take talk teach
tell terminate test throw time total touch track transform transition translate transmit
traverse treat trim truncate try turn unassign unblock undo unlock unpack unpause unregister
unsubscribe unwrap update upgrade use validate verify visit wait wake walk warn watch weigh
widen withdraw withhold work wrap write yield
"""
# Nouns as often as verbs: a verb only if what follows is not what follows a noun.
NOUNS_TOO = """
answer block bound buffer change charge claim cut delay demand end exchange feed group guess
hash help label lead limit link list match measure name note number offer order partition place
plan play point process promise query queue record request result round sample score set sign
signal slice sort stamp state step stream sum test time total touch track turn use
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
