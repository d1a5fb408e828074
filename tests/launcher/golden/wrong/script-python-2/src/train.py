import sys

print 'trained'
